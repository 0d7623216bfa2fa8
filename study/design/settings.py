"""The settings that methods are compared in, each as changes to the paper's experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Overrides = Mapping[str, Any]  # by dotted key, as after --set

# Written out even where they are the defaults: the study must not change when those do.
COMMON: Overrides = MappingProxyType(
    {
        "rounds": 20,
        "warmup": 25,
        "data.name": "mnist",
        "data.num_clients": 20,
        "data.partition": "dirichlet",
        "model.name": "cnn",
        "local.batches": 25,
        "local.batch_size": 100,
        "sharing.max_disclosure": 1.0,  # the paper has no cap
        "save_every": 10,
    }
)
# A quick check that everything runs: small in every respect.
QUICK: Overrides = MappingProxyType(
    {
        "rounds": 2,
        "warmup": 2,
        "data.num_train": 1200,
        "data.num_test": 400,
        "data.min_samples": 5,
        "model.name": "mlp",
        "model.hidden": 8,
        "local.batches": 2,
        "local.batch_size": 20,
        "data.scenario.at": 1,
        "data.scenario.lasts": 1,
        "engine": "sequential",
    }
)
QUICK_SETTINGS = ("S1", "S4")  # one of each kind, on the dataset that the package contains
SHARING = (0.0, 0.1)
SEEDS = (0, 1, 2, 3, 4)
PAPER, PAPER_SHARING = "S1", 0.1  # the paper's own experiment
VALIDATION: Overrides = {"data.score_on": "validation"}
SWEEP_SEEDS = (100, 101)  # not in SEEDS: choices must not be fitted to what is compared


@dataclass(frozen=True, slots=True)
class Setting:
    """A name for tables, a title, what it changes, and the ratios of sharing that are tried."""

    name: str
    title: str
    overrides: Overrides
    sharing: tuple[float, ...] = SHARING

    @property
    def has_groups(self) -> bool:
        """Whether the true groups of the clients are known, so that their number can be told."""
        return "hypcluster.num_clusters" in self.overrides


def quick_of(setting: Setting) -> Overrides:
    """What a quick check changes; clients that have samples of their own get fewer of them."""
    if setting.overrides.get("data.partition") != "natural":
        return QUICK
    few = {
        key: value for key, value in QUICK.items() if key not in ("data.num_train", "data.num_test")
    }
    return {**few, "data.samples": 40}


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("S1", "MNIST, 20 clients, Dirichlet 1 (the paper's)", {"data.alpha": 1.0}),
        Setting("S2", "MNIST, 20 clients, Dirichlet 0.1", {"data.alpha": 0.1}),
        Setting(
            "S3",
            "Fashion-MNIST, 20 clients, Dirichlet 0.3",
            {"data.name": "fashion-mnist", "data.alpha": 0.3},
        ),
        Setting(
            "S4",
            "MNIST, 24 clients in nested groups (4 rotations × 2 label swaps)",
            {
                "data.num_clients": 24,
                "data.partition": "groups",
                "data.num_rotations": 4,
                "data.num_swaps": 2,
                "hypcluster.num_clusters": 8,  # the true number, given
            },
            sharing=(0.0,),
        ),
        Setting("S5", "MNIST, 20 clients, all alike (iid)", {"data.partition": "iid"}, (0.0,)),
    )
}
