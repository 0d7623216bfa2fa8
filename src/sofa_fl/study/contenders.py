"""Who is compared, and what is tried of each before: grids of the sweep, parts of the ablation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from sofa_fl.methods.registry import title_of
from sofa_fl.study.settings import Overrides, Setting

PAPER_K = 3  # clusters of HypCluster in the paper
RATES = (1e-3, 2e-3)
PUBLISHED: Overrides = MappingProxyType({"local.final_rate": 1.0, "local.prior": False})
# What SOFA-FL has besides its tree, in all settings the same, and with `+` everybody has.
PLUS: Overrides = MappingProxyType(
    {"local.learning_rate": 2e-3, "local.final_rate": 0.3, "local.prior": True}
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A row of the benchmark.

    Attributes:
        label: Its name in rows and on the command line; `+` marks a baseline that is given
            SOFA-FL's falling learning rate and class-mix correction.
        method: Who trains.
        overrides: What makes it this contender, in every setting.
        rates: The learning rates that the sweep tries, if any.
        grid: What it tries of the method's own parameters, at the best rate.
        needs_groups: Whether it must be told who belongs together.
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
        """What is tried in a setting: not what that setting gives."""
        return tuple(values for values in self.grid if not values.keys() & setting.overrides.keys())

    def start_in(self, setting: Setting) -> Overrides:
        """The own parameters that the learning rate is chosen at: the middle of the grid."""
        grid = self.grid_in(setting)
        return grid[len(grid) // 2] if grid else {}

    def is_swept(self, setting: Setting) -> bool:
        """Whether anything is chosen for it in a setting."""
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
}
BASELINES = (
    "local", "fedavg", "fedavg_ft", "fedprox", "ditto", "hypcluster", "cfl", "fl_hc", "hierfavg",
)  # fmt: skip


def _published(method: str) -> Contender:
    groups = method == "oracle"
    return Contender(method, method, PUBLISHED, RATES, GRIDS.get(method, ()), groups)


def _plus(method: str) -> Contender:
    groups = method == "oracle"
    grid = crossed(hypcluster__num_clusters=(2, 3)) if method == "hypcluster" else ()
    return Contender(f"{method}+", method, PLUS, (), grid, groups)


CONTENDERS: Mapping[str, Contender] = {
    contender.label: contender
    for contender in (
        Contender("sofa", "sofa", PLUS, ()),
        *map(_published, BASELINES),
        *map(_plus, ("fedavg", "fedavg_ft", "fedprox", "hypcluster")),
        _published("oracle"),
        _plus("oracle"),
    )
}

RATE = "local.learning_rate"
# The keys that the sweep chooses values of.
CHOSEN = frozenset({RATE, *(key for grid in GRIDS.values() for values in grid for key in values)})

# Every part of SOFA-FL off, one at a time: a label, and what it changes of the whole.
FULL = "SOFA-FL"
ABLATION: Mapping[str, Overrides] = {
    FULL: {},
    "constant rate": {"local.final_rate": 1.0},
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
# In which settings which parts; of the tree it is told in all, even where that is nothing.
ABLATED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("S1", "S2"), tuple(ABLATION)),
    "S4": tuple(label for label in ABLATION if label != NO_SHARING),  # nothing is shared there
    **dict.fromkeys(("S3", "S5"), (FULL, NO_TREE)),
}

# The rows of the paper's second table, with its client and total averages.
TABLE2: Mapping[str, tuple[Overrides, float, float]] = {
    "no sharing": ({"sharing.ratio": 0.0, "sharing.mode": "random"}, 0.9794, 0.9451),
    "0.1, random": ({"sharing.ratio": 0.1, "sharing.mode": "random"}, 0.9866, 0.9604),
    "0.1, fixed": ({"sharing.ratio": 0.1, "sharing.mode": "fixed"}, 0.9827, 0.9578),
    "0.2, fixed": ({"sharing.ratio": 0.2, "sharing.mode": "fixed"}, 0.9846, 0.9430),
}


def title(label: str) -> str:
    """What a contender is called in print."""
    return title_of(label.removesuffix("+")) + "+" * label.endswith("+")
