"""The settings and contenders that each target of the study accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from study.design.adapter_settings import ADAPTED, FEDERATIONS
from study.design.contenders import CONTENDERS
from study.design.disclosure_settings import DISCLOSURE_SETTINGS, DISCLOSURES
from study.design.drift_settings import (
    DRIFTERS,
    FAULTY,
    QUICK_DRIFT,
    QUICK_FAULTS,
    SITUATIONS,
    VARIANTS,
)
from study.design.natural_contenders import NATURALS, PARTS, PARTS_IN
from study.design.natural_settings import NATURAL_SETTINGS, QUICK_NATURAL
from study.design.privacy_settings import PRIVATE, PRIVATE_SETTINGS, QUICK_PRIVATE
from study.design.settings import QUICK_SETTINGS, SETTINGS
from study.design.tree_settings import QUICK_TREES, TREE_SETTINGS, TREES

if TYPE_CHECKING:
    from study.design.run_plan import Scope


class Known(NamedTuple):
    """The names that a target accepts: settings, the settings of a quick check, contenders."""

    settings: tuple[str, ...]
    quick: tuple[str, ...]
    methods: tuple[str, ...]

    def part_of(self, scope: Scope) -> Scope:
        """The part of what is asked for that this target accepts."""
        return replace(
            scope,
            settings=tuple(name for name in scope.settings if name in self.settings),
            methods=tuple(name for name in scope.methods if name in self.methods),
        )


PUBLISHED = Known(tuple(SETTINGS), QUICK_SETTINGS, tuple(CONTENDERS))
OWN: Mapping[str, Known] = {
    "drift": Known(tuple(SITUATIONS), QUICK_DRIFT, tuple(DRIFTERS)),
    "faults": Known(tuple(FAULTY), QUICK_FAULTS, tuple(VARIANTS)),
    **dict.fromkeys(
        ("natural", "natural_sweep"),
        Known(tuple(NATURAL_SETTINGS), QUICK_NATURAL, tuple(NATURALS)),
    ),
    "natural_ablation": Known(PARTS_IN, PARTS_IN[:1], tuple(PARTS)),
    "disclosure": Known(tuple(DISCLOSURE_SETTINGS), tuple(DISCLOSURE_SETTINGS), tuple(DISCLOSURES)),
    "privacy": Known(tuple(PRIVATE_SETTINGS), QUICK_PRIVATE, tuple(PRIVATE)),
    "tree": Known(tuple(TREE_SETTINGS), QUICK_TREES, tuple(TREES)),
    "adapters": Known(tuple(FEDERATIONS), tuple(FEDERATIONS), tuple(ADAPTED)),
}


def known_to(target: str) -> Known:
    """The names that a target accepts; `all` accepts those of every target."""
    if target != "all":
        return OWN.get(target, PUBLISHED)
    together = zip(PUBLISHED, *OWN.values())
    return Known(*(tuple(dict.fromkeys(name for names in of for name in names)) for of in together))
