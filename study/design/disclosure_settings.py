"""How little sharing is enough: SOFA-FL at several disclosed shares, and three ways to spend 5%."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sofa_fl.experiment.run.launch import PAPER_RATIO
from study.design.contenders import PLUS, Contender
from study.design.settings import SETTINGS, Setting

DISCLOSURE_SETTINGS: Mapping[str, Setting] = {name: SETTINGS[name] for name in ("S1", "S2")}
SHARES = (0.0, 0.01, 0.02, 0.05, 0.1)  # disclosed once, and used in every round
NONE, UNCAPPED = "0%", "89%"
LESS = "5%"
REFRESHED, TO_ALL = f"{LESS} refreshed", f"{LESS} to all"
DRAWS = 21  # pools are drawn after the warm-up, and after each of 20 rounds


def label_of(share: float) -> str:
    return f"{share:.0%}"


def _sharing(ratio: Any, cap: float) -> dict[str, Any]:
    return {"sharing.ratio": ratio, "sharing.max_disclosure": cap}


def _refreshed(share: float) -> dict[str, Any]:
    """New samples in every round, used in that round alone, until `share` is disclosed."""
    return _sharing(1 - (1 - share) ** (1 / DRAWS), share)


ON_CURVE = (*map(label_of, SHARES), UNCAPPED)
WAYS = (LESS, REFRESHED, TO_ALL)
DEFAULT = label_of(PAPER_RATIO)  # of the package, on the datasets of these settings
DISCLOSURES: Mapping[str, Contender] = {
    label: Contender(label, "sofa", {**PLUS, **sharing}, ())
    for label, sharing in {
        **{label_of(share): _sharing(share, share) for share in SHARES},
        UNCAPPED: _sharing(0.1, 1.0),
        REFRESHED: _refreshed(0.05),
        TO_ALL: _sharing([0.05, 1.0], 0.05),
    }.items()
}
