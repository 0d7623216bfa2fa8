"""Methods that go with secure aggregation: those that need only means of clients with one start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config
from sofa_fl.federation import Federation
from sofa_fl.methods.method import Method
from sofa_fl.methods.registry import make_method
from sofa_fl.methods.sofa.averages import Models
from sofa_fl.methods.sofa.by_models import SofaByModels
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.edits import Edit
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from sofa_fl_flower.masked_sum.plan import SMALLEST

ALWAYS_SUMMED = ("fedavg", "fedprox", "fedadam", "fedyogi", "hypcluster")


def masks_in(config: Config, round: int) -> bool:
    """Whether models are masked in a round: SOFA-FL builds its tree from those of the warm-up."""
    return round > 0 or config.method in ALWAYS_SUMMED


def check_summing(config: Config, smallest: int) -> None:
    """Raise unless the run needs nothing of single clients' models after the warm-up."""
    if smallest < SMALLEST:
        raise ConfigError(
            f"secure_aggregation must be 0 or the smallest number of machines in a sum, at least "
            f"{SMALLEST}, got {smallest}"
        )
    sofa, known = config.sofa, ", ".join(("sofa", *ALWAYS_SUMMED))
    needed = {"guard.aggregate=mean": config.guard.aggregate == "mean"}
    if config.method == "sofa":
        needed |= {
            "sofa.evidence=models": sofa.evidence == "models",
            "sofa.propagation=onepass": sofa.propagation == "onepass",
            "sofa.start=path": sofa.start == "path",
            "sofa.pull_siblings=0": not np.any(sofa.pull_siblings),
        }
    elif config.method not in ALWAYS_SUMMED:
        raise ConfigError(
            "secure_aggregation needs a method that uses only sums of models, got "
            f"{config.method}; use one of {known}"
        )
    if missing := [setting for setting, is_set in needed.items() if not is_set]:
        raise ConfigError(
            "secure_aggregation hides the models of single clients, so it needs "
            f"{' and '.join(missing)}; set this in sofa.yaml, or with `set`"
        )


def summing_method(config: Config, smallest: int) -> Method[Any]:
    """The method of a run, whose clusters are large enough for a sum."""
    if config.method != "sofa":
        return make_method(config)
    return SummedSofa(config.sofa, config.sharing, smallest)


class SummedSofa(SofaByModels):
    """SOFA-FL with a tree of clusters that are large enough for a sum."""

    def __init__(self, config: SofaConfig, sharing: SharingConfig, smallest: int) -> None:
        super().__init__(config, sharing)
        self.smallest = smallest

    def grow(self, space: Space, learned: Models, fed: Federation) -> Tree:
        tree = super().grow(space, learned, fed)
        return with_large_parts(tree, space, self.smallest, fed.first_id)

    def edits(self, *_: object) -> list[Edit]:
        """The tree stays: after the warm-up nothing new is known of single clients."""
        return []


def with_large_parts(tree: Tree, space: Space, smallest: int, first: int) -> Tree:
    """The root and its clusters of at least `smallest` clients, one level of them.

    All other clients stay at the root if they are enough for a sum; otherwise each goes to the
    cluster that is nearest to it.
    """
    clusters = [node for node in tree.children[tree.root] if node not in tree.members]
    found = [list(tree.clients_of(node)) for node in clusters]
    parts = [part for part in found if len(part) >= smallest]
    rest = [client for client in space.clients if not any(client in part for part in parts)]
    if parts and len(rest) < smallest:
        for client, nearest in zip(rest, nearest_parts(rest, parts, space)):
            parts[nearest].append(client)
        rest = []
    flat = flat_tree(space.clients, first)
    if len(parts) + bool(rest) < 2:
        return flat
    moves: dict[NodeId, NodeId | None] = {}
    for at, part in enumerate(parts):
        cluster = NodeId(flat.next_id + at)
        moves |= {cluster: flat.root, **dict.fromkeys(part, cluster)}
    return flat.reparent(moves)


def nearest_parts(
    clients: Sequence[NodeId], parts: Sequence[Sequence[NodeId]], space: Space
) -> list[int]:
    """For each client the part whose clients are nearest to it on average."""
    row = {client: at for at, client in enumerate(space.clients)}
    found = []
    for client in clients:
        distances = space.distances(space.positions[[row[client]]], space.positions)[0]
        means = [distances[[row[one] for one in part]].mean() for part in parts]
        found.append(int(np.argmin(means)))
    return found
