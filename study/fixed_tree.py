"""SOFA-FL with a tree that is given and stays: a method for the experiment in which only it varies.

Nothing of it belongs to the package: the true groups are for scoring, and only the study tells them
to a method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sofa_fl.errors import DataError
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.averages import Models
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.seeding import rng_for
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree

Kind = Literal["dmac", "two", "one", "upper", "flat", "random"]
Groups = Mapping[NodeId, int]  # of every client


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeConfig:
    """Which tree.

    Attributes:
        kind: `dmac` is the tree that DMAC builds after the warm-up; `two`, `one` and `upper` are
            the true groups with both levels, the lower one and the upper one; `flat` has the root
            alone; `random` is `two` with the clients in random places.
        sofa: All else of SOFA-FL.
    """

    kind: Kind = "dmac"
    sofa: SofaConfig = field(default_factory=SofaConfig)


class FixedTree(Sofa):
    def __init__(self, config: TreeConfig, sharing: SharingConfig) -> None:
        super().__init__(config.sofa, sharing)
        self.kind = config.kind

    def grow(self, space: Space, learned: Models, fed: Federation) -> Tree:
        """The given tree in place of DMAC's."""
        if self.kind == "dmac":
            return super().grow(space, learned, fed)
        return given_tree(self.kind, fed)


def given_tree(kind: Kind, fed: Federation) -> Tree:
    """The tree of this kind over the federation's clients."""
    truth = fed.stage.truth
    if len(truth) != 2:
        raise DataError(
            f"a given tree needs true groups on two levels, got {len(truth)}; set "
            "data.partition=groups or sites"
        )
    places = list(fed.clients)
    if kind == "random":
        places = [fed.clients[at] for at in rng_for(fed.seed, "tree").permutation(len(places))]
    lower, upper = (
        {client: level[place] for client, place in zip(fed.clients, places)} for level in truth
    )
    levels: Mapping[Kind, Sequence[Groups]] = {
        "two": (upper, lower),
        "random": (upper, lower),
        "one": (lower,),
        "upper": (upper,),
        "flat": (),
    }
    return nested_tree(fed.clients, levels[kind], fed.first_id)


def nested_tree(clients: Sequence[NodeId], levels: Sequence[Groups], first: int) -> Tree:
    """A cluster per group, the highest level first, over all clients; ids from `first` on."""
    root = NodeId(first)
    parent: dict[NodeId, NodeId | None] = {root: None}
    clusters: dict[tuple[int, ...], NodeId] = {(): root}
    for client in clients:
        path = tuple(level[client] for level in levels)
        for depth in range(1, len(path) + 1):
            if path[:depth] not in clusters:
                node = clusters[path[:depth]] = NodeId(first + len(clusters))
                parent[node] = clusters[path[: depth - 1]]
        parent[client] = clusters[path]
    return Tree(parent, tuple(clients), first + len(clusters))
