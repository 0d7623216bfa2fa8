"""Who is compared, what the sweep tries for each, and what the ablation removes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from sofa_fl.experiment.run.presets import PRESETS
from sofa_fl.methods.registry import built_in_methods, title_of
from study.design.settings import Overrides, Setting

RATE = "local.learning_rate"
PAPER_K = 3  # clusters of HypCluster in the paper
RATES = (1e-3, 2e-3)
PUBLISHED: Overrides = MappingProxyType({"local.prior": False})
# What SOFA-FL has besides its tree, the same in all settings; a baseline marked `+` has it, too.
PLUS: Overrides = MappingProxyType({RATE: 2e-3, "local.prior": True})
# SCAFFOLD corrects gradients, so it needs plain descent, and rates for that.
SGD: Overrides = MappingProxyType({"local.optimizer": "sgd"})
SGD_RATES = (0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class Contender:
    """A row of the benchmark.

    Attributes:
        label: Its name in rows and on the command line; `+` marks a baseline with SOFA-FL's
            class-mix correction.
        method: The method that trains.
        overrides: What distinguishes it, in every setting.
        rates: The learning rates that the sweep tries, if any.
        grid: The values of the method's own parameters that the sweep tries, at the best rate.
        needs_groups: Whether it must be told the true groups.
    """

    label: str
    method: str
    overrides: Overrides
    rates: tuple[float, ...]
    grid: tuple[Overrides, ...] = ()
    needs_groups: bool = False

    @property
    def is_plus(self) -> bool:
        return self.label.endswith("+")

    def grid_in(self, setting: Setting) -> tuple[Overrides, ...]:
        """What the sweep tries in a setting; a parameter that the setting fixes is not tried."""
        return tuple(values for values in self.grid if not values.keys() & setting.overrides.keys())

    def start_in(self, setting: Setting) -> Overrides:
        """The values at which the learning rate is chosen: the middle of the grid."""
        grid = self.grid_in(setting)
        return grid[len(grid) // 2] if grid else {}

    def is_swept(self, setting: Setting) -> bool:
        """Whether the sweep chooses anything for it in a setting."""
        return bool(self.rates or self.grid_in(setting))

    def fits(self, setting: Setting) -> bool:
        return setting.has_groups or not self.needs_groups


def crossed(**values: tuple[float, ...]) -> tuple[Overrides, ...]:
    """All combinations; `fedprox__pull` stands for the key `fedprox.pull`."""
    keys = [key.replace("__", ".") for key in values]
    return tuple(dict(zip(keys, chosen)) for chosen in product(*values.values()))


GRIDS: Mapping[str, tuple[Overrides, ...]] = {
    "fedprox": crossed(fedprox__pull=(1e-3, 1e-2, 1e-1)),
    "ditto": crossed(ditto__pull=(1e-3, 1e-2, 1e-1)),
    "hypcluster": crossed(hypcluster__num_clusters=(1, 2, 3, 4, 5)),
    "cfl": crossed(cfl__stationary=(0.35, 0.5), cfl__deviation=(0.65, 0.72)),
    "fl_hc": crossed(fl_hc__threshold=(0.25, 0.5, 0.75)),
    "hierfavg": crossed(hierfavg__num_edges=(2, 4), hierfavg__period=(2, 5)),
    "hypcluster_restarts": crossed(hypcluster__num_clusters=(2, 3, 4, 5)),
    "apfl": crossed(apfl__alpha=(0.1, 0.25, 0.5, 0.75, 0.9)),
    "fedrep": crossed(fedrep__head_share=(0.2, 0.4, 2 / 3, 0.9)),
    "fedala": crossed(fedala__share=(0.1, 0.2, 0.4)),
    "fedrod": crossed(fedrod__head_share=(0.2, 0.5, 0.8)),
    "fedadam": crossed(fedadam__rate=(3e-3, 1e-2, 3e-2, 1e-1, 3e-1)),
    "fedyogi": crossed(fedyogi__rate=(3e-3, 1e-2, 3e-2, 1e-1, 3e-1)),
}
BASELINES = (
    "local", "fedavg", "fedavg_ft", "fedprox", "ditto", "hypcluster", "cfl", "fl_hc", "hierfavg",
    "apfl", "fedrep", "fedala", "fedrod", "fedadam", "fedyogi", "scaffold", "hypcluster_restarts",
)  # fmt: skip


def _published(method: str) -> Contender:
    groups, grid = method == "oracle", GRIDS.get(method, ())
    if method == "scaffold":
        return Contender(method, method, {**PUBLISHED, **SGD}, SGD_RATES, grid)
    return Contender(method, method, PUBLISHED, RATES, grid, groups)


def _plus(method: str) -> Contender:
    groups = method == "oracle"
    if method == "scaffold":
        return Contender(f"{method}+", method, {**PLUS, **SGD}, SGD_RATES)
    has_k = method in ("hypcluster", "hypcluster_restarts")
    grid = crossed(hypcluster__num_clusters=(2, 3)) if has_k else ()
    return Contender(f"{method}+", method, PLUS, (), grid, groups)


CONTENDERS: Mapping[str, Contender] = {
    contender.label: contender
    for contender in (
        Contender("sofa", "sofa", PLUS, ()),
        *map(_published, BASELINES),
        *map(_plus, BASELINES),
        Contender("regroup+", "regroup", PLUS, ()),
        _published("oracle"),
        _plus("oracle"),
    )
}

# The contenders of the paper's own tables only, with nothing left to choose: SOFA-FL as the paper
# writes it, which is the preset, and HypCluster with the paper's number of clusters. Its learning
# rate is the better one of those that the sweep of HypCluster tried with this number.
AS_WRITTEN, PAPER_HYPCLUSTER = "sofa_paper", "hypcluster_k3"
PAPER_CONTENDERS: Mapping[str, Contender] = {
    contender.label: contender
    for contender in (
        Contender(AS_WRITTEN, "sofa", PRESETS["paper"], ()),
        Contender(
            PAPER_HYPCLUSTER,
            "hypcluster",
            {**PUBLISHED, "hypcluster.num_clusters": PAPER_K, "local.learning_rate": 2e-3},
            (),
        ),
    )
}
ALL_CONTENDERS: Mapping[str, Contender] = {**CONTENDERS, **PAPER_CONTENDERS}

# The keys whose values the sweep chooses.
CHOSEN = frozenset({RATE, *(key for grid in GRIDS.values() for values in grid for key in values)})

# Each part of SOFA-FL switched off: a label, and the overrides that do it.
FULL = "SOFA-FL"
ABLATION: Mapping[str, Overrides] = {
    FULL: {},
    "no class-mix correction": {"local.prior": False},
    "no tree": {"sofa.dmac.increase": 1e9, "sofa.shape.operations": []},
    "one gamma of 1.2": {"sofa.dmac.increase": 1.2},
    "no SHAPE": {"sofa.shape.operations": []},
    "no pulls": {"sofa.pull_siblings": 0.0, "sofa.pull_parent": 0.0},
    "losses not steadied": {"sofa.steadiness": 0.0},
    "own model only": {"sofa.serve": "own"},
    "no sharing": {"sharing.ratio": 0.0},
}
NO_TREE, NO_SHARING = "no tree", "no sharing"
# The parts that are switched off in each setting; the tree in all of them.
ABLATED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("S1", "S2"), tuple(ABLATION)),
    "S4": tuple(label for label in ABLATION if label != NO_SHARING),  # nothing is shared there
    **dict.fromkeys(("S3", "S5"), (FULL, NO_TREE)),
}

# The paper's first table: its columns.
TABLE1 = (AS_WRITTEN, "sofa", PAPER_HYPCLUSTER, "hypcluster")
# The paper's second table: its rows, with the client and the total average that the paper reports.
NONE, RANDOM, FIXED, MORE_FIXED = "no sharing", "0.1, random", "0.1, fixed", "0.2, fixed"
TABLE2: Mapping[str, tuple[Overrides, float, float]] = {
    NONE: ({"sharing.ratio": 0.0, "sharing.mode": "random"}, 0.9794, 0.9451),
    RANDOM: ({"sharing.ratio": 0.1, "sharing.mode": "random"}, 0.9866, 0.9604),
    FIXED: ({"sharing.ratio": 0.1, "sharing.mode": "fixed"}, 0.9827, 0.9578),
    MORE_FIXED: ({"sharing.ratio": 0.2, "sharing.mode": "fixed"}, 0.9846, 0.9430),
}
TABLE2_CONTENDERS = (AS_WRITTEN, "sofa")
TITLES = {
    AS_WRITTEN: "SOFA-FL as written",
    PAPER_HYPCLUSTER: f"HypCluster, K = {PAPER_K}",
}


def table2_label(contender: str, sharing: str) -> str:
    """How a run of the second table is called in rows: by its sharing, unless it is as written."""
    return sharing if contender == "sofa" else f"{contender}: {sharing}"


def title(label: str) -> str:
    """What a contender is called in print; a label that names no method is its own title."""
    method = label.removesuffix("+")
    printed = title_of(method) if method in built_in_methods() else TITLES.get(method, method)
    return printed + "+" * label.endswith("+")
