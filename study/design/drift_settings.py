"""Beyond the benchmark: scenarios in which clients change, come and go, or fail.

Also settings in which nothing changes, and who is compared in each of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from study.design.contenders import PLUS, Contender, crossed
from study.design.natural_settings import NATURAL_SETTINGS
from study.design.privacy_settings import PRIVATE_SETTINGS
from study.design.settings import SETTINGS, Overrides, Setting
from study.design.tree_settings import TREE_SETTINGS

AT = 10  # the round of the change
NO_SHARING, SOME_SHARING = (0.0,), (0.0, 0.1)
ROTATIONS: Overrides = {"data.num_clients": 24, "data.num_rotations": 4, "data.num_swaps": 1}


def _scenario(name: str, title: str, num_groups: int = 4, **more: float) -> Setting:
    """A scenario; HypCluster is told `num_groups`, the largest number of groups at any time."""
    values = {"name": name, "at": AT, "fraction": 1 / 3, **more}
    overrides = {
        **ROTATIONS,
        "data.partition": "iid",
        **{f"data.scenario.{key}": value for key, value in values.items()},
        "hypcluster.num_clusters": num_groups,
    }
    return Setting(name, title, overrides, NO_SHARING)


SCENARIOS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        _scenario("swap", "a third of every group moves to the next group"),
        _scenario("emerge", "a third of one group becomes a new group", 5),
        _scenario("converge", "one group becomes like another"),
        _scenario(
            "rotate", "every other group turns by 3° a round, for ten rounds", lasts=10, degrees=3.0
        ),
        _scenario("recur", "as emerge, and five rounds later everything is as before", 5, lasts=5),
        _scenario("churn", "a third of every group leaves for good, and as many newcomers join"),
    )
}
GROUPS = Setting(
    "groups",
    "MNIST, 24 clients, four rotations",
    {**ROTATIONS, "data.partition": "groups"},
    NO_SHARING,
)


def _shared(setting: Setting, sharing: tuple[float, ...]) -> Setting:
    return Setting(setting.name, setting.title, setting.overrides, sharing)


# Nothing changes, so the tree should not change either.
STILL: Mapping[str, Setting] = {
    "S1": _shared(SETTINGS["S1"], NO_SHARING),
    "S2": _shared(SETTINGS["S2"], NO_SHARING),
    "groups": GROUPS,
}
SITUATIONS: Mapping[str, Setting] = {**SCENARIOS, **STILL}
FAULTY: Mapping[str, Setting] = {"S1": _shared(SETTINGS["S1"], SOME_SHARING), "groups": GROUPS}
EVERY: Mapping[str, Setting] = {
    **SCENARIOS,
    "groups": GROUPS,
    **SETTINGS,
    **NATURAL_SETTINGS,
    **TREE_SETTINGS,
    **PRIVATE_SETTINGS,
}
QUICK_DRIFT, QUICK_FAULTS = ("swap", "churn", "groups"), ("groups",)

SOFA, FROZEN, REGROUP = "sofa", "frozen tree", "regroup"
DRIFTERS: Mapping[str, Contender] = {
    contender.label: contender
    for contender in (
        Contender(SOFA, "sofa", PLUS, ()),
        Contender(FROZEN, "sofa", {**PLUS, "sofa.shape.operations": []}, ()),
        Contender(REGROUP, "regroup", PLUS, ()),
        Contender("fedavg", "fedavg", PLUS, ()),
        Contender("hypcluster", "hypcluster", PLUS, ()),
        Contender("feddrift", "feddrift", PLUS, (), crossed(feddrift__change=(0.1, 0.3, 1.0))),
        Contender("oracle", "oracle", PLUS, ()),
    )
}
IN_STILL = (SOFA, REGROUP)  # the contenders if nothing changes

BAD = 0.2  # the fraction of the clients that send bad updates
KINDS = ("nan", "huge", "flip", "mixed")
AGGREGATES = ("mean", "median", "trimmed")
CLEAN, PARTIAL, STRAGGLERS = "clean", "partial", "stragglers"
PARTIAL_ROUNDS = 67  # 0.3 of the clients for 67 rounds train as much as all for 20


def variant(kind: str, aggregate: str) -> str:
    """The label of SOFA-FL with a kind of bad clients, or none, and a way of averaging."""
    return f"{kind}/{aggregate}"


# SOFA-FL with every fault: a label, and its overrides.
VARIANTS: Mapping[str, Overrides] = {
    **{variant(CLEAN, how): {"guard.aggregate": how} for how in AGGREGATES},
    **{
        variant(kind, how): {"faults.bad": BAD, "faults.kind": kind, "guard.aggregate": how}
        for kind in KINDS
        for how in AGGREGATES
    },
    PARTIAL: {"participation": 0.3, "faults.dropout": 0.2, "rounds": PARTIAL_ROUNDS},
    STRAGGLERS: {"faults.straggle": 0.5},
}
