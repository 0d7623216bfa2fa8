"""The deciding experiment: SOFA-FL with trees that are given and stay, and nothing else varies.

S4 is nested and its levels contradict each other: clients of one rotation have different labels.
S9 is nested and compatible. Both have 24 clients: 4 groups of 2 groups of 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from study.design.contenders import PLUS, Contender
from study.design.settings import Overrides, Setting

TREE_SEEDS = tuple(range(300, 310))  # nothing was chosen on these
SAMPLES = (25, 100, 500, 2500)
NETWORKS = ("cnn", "mlp")
BUDGET: Overrides = {"warmup": 25, "local.batches": 25, "local.batch_size": 20}
NESTED: Mapping[str, Overrides] = {
    "S4": {
        "data.num_clients": 24,
        "data.partition": "groups",
        "data.num_rotations": 4,
        "data.num_swaps": 2,
    },
    "S9": {
        "data.num_clients": 24,
        "data.partition": "sites",
        "data.num_regions": 4,
        "data.num_sites": 2,
    },
}


@dataclass(frozen=True, slots=True)
class GridCell:
    """One combination of a federation, a number of samples and a network."""

    data: str
    samples: int
    network: str

    @property
    def name(self) -> str:
        return f"{self.data}-{self.samples}-{self.network}"

    @property
    def setting(self) -> Setting:
        what = "contradicting" if self.data == "S4" else "compatible"
        title = f"{self.data} ({what}), {self.samples:,} samples each, {self.network.upper()}"
        overrides = {
            **NESTED[self.data],
            **BUDGET,
            "data.samples": self.samples,
            "model.name": self.network,
        }
        return Setting(self.name, title, overrides, (0.0,))


CELLS: Mapping[str, GridCell] = {
    cell.name: cell
    for cell in (GridCell(d, n, network) for d in NESTED for network in NETWORKS for n in SAMPLES)
}
TREE_SETTINGS: Mapping[str, Setting] = {name: cell.setting for name, cell in CELLS.items()}
QUICK_TREES = ("S4-25-mlp", "S9-25-mlp")
# Where the claim is decided: the upper level is compatible, and clients are small.
PRIMARY = tuple(
    name for name, cell in CELLS.items() if cell.data == "S9" and cell.samples in (25, 100)
)

TWO, ONE = "two levels", "one level"
KINDS: Mapping[str, str] = {
    "DMAC": "dmac",
    TWO: "two",
    ONE: "one",
    "upper level only": "upper",
    "flat": "flat",
    "random two levels": "random",
}
STILL: Overrides = {"options.sofa.shape.operations": []}
TREES: Mapping[str, Contender] = {
    label: Contender(
        label, "study.fixed_tree:FixedTree", {**PLUS, **STILL, "options.kind": kind}, ()
    )
    for label, kind in KINDS.items()
}
