"""Who is compared on natural federations: every method, with SOFA-FL's local training.

A baseline that is added to `methods/baselines` takes part by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from sofa_fl.methods.registry import built_in_methods
from study.design.contenders import (
    ABLATION,
    FULL,
    GRIDS,
    NO_TREE,
    PLUS,
    PUBLISHED,
    Contender,
    crossed,
)
from study.design.natural_settings import NATURAL_SETTINGS
from study.design.settings import Overrides

REGROUP = "regroup"
TOLD = (
    "hypcluster",
    "hypcluster_restarts",
    "oracle",
)  # the number of the true groups, or the groups themselves
# In the order of the tables; any other baseline follows these.
ORDER = (
    "local", "fedavg", "fedavg_ft", "fedprox", "scaffold", "fedadam", "fedyogi", "ditto", "apfl",
    "fedrep", "fedala", "fedrod", "hypcluster", "hypcluster_restarts", "cfl", "fl_hc", "feddrift",
    "hierfavg", "oracle",
)  # fmt: skip
# Beside FLamby's numbers: without the class-mix correction, which it has not.
AS_PUBLISHED, PUBLISHED_IN = ("local", "fedavg"), "heart"
FIXED: Mapping[str, Overrides] = {"heart": {"local.learning_rate": 1e-3}}  # FLamby's
# SCAFFOLD corrects gradients, so it needs plain descent, and a rate for that.
SPECIAL: Mapping[str, Overrides] = {
    "scaffold": {"local.optimizer": "sgd", "local.learning_rate": 0.1}
}

# What is tried for each on validation data; the number of groups is told and not tried.
TRIED: Mapping[str, tuple[Overrides, ...]] = {
    **{name: grid for name, grid in GRIDS.items() if name not in TOLD},
    "feddrift": crossed(feddrift__change=(0.1, 0.3, 1.0)),
    "scaffold": crossed(local__learning_rate=(0.03, 0.1, 0.3, 1.0)),
}


def contenders(known: tuple[str, ...]) -> dict[str, Contender]:
    """SOFA-FL, its variants, and every baseline of those that are `known`."""
    others = [name for name in known if name not in (*ORDER, REGROUP, "sofa")]
    baselines = [name for name in (*ORDER, *others) if name in known]
    found = [
        Contender("sofa", "sofa", PLUS, ()),
        Contender(NO_TREE, "sofa", {**PLUS, **ABLATION[NO_TREE]}, ()),
        Contender(REGROUP, REGROUP, PLUS, ()),
        *map(_plus, baselines),
        *(Contender(name, name, PUBLISHED, ()) for name in AS_PUBLISHED),
    ]
    return {contender.label: contender for contender in found}


def _plus(name: str) -> Contender:
    overrides = {**PLUS, **SPECIAL.get(name, {})}
    return Contender(f"{name}+", name, overrides, (), TRIED.get(name, ()), name in TOLD)


# What SOFA-FL runs without, one at a time; and where, so that groups, none and levels are there.
PARTS: Mapping[str, Overrides] = {
    FULL: {},
    NO_TREE: ABLATION[NO_TREE],
    "no SHAPE": ABLATION["no SHAPE"],
    "always from the own model": {"sofa.start": "own"},
    "own model only": ABLATION["own model only"],
    "losses not steadied": ABLATION["losses not steadied"],
    "no pulls": ABLATION["no pulls"],
    "no class-mix correction": ABLATION["no class-mix correction"],
}
PARTS_IN = ("languages-300", "weather", "S6", "S9-100")

NATURALS: Mapping[str, Contender] = contenders(built_in_methods())


def fixed_in(setting: str, contender: Contender) -> Overrides | None:
    """What a setting fixes for a contender."""
    return None if contender.method in SPECIAL else FIXED.get(setting)


def fitting(setting: str) -> list[Contender]:
    """The contenders of a setting."""
    return [
        contender
        for label, contender in NATURALS.items()
        if contender.fits(NATURAL_SETTINGS[setting])
        and (label not in AS_PUBLISHED or setting == PUBLISHED_IN)
    ]
