"""What the rules of SHAPE decide by: where clients are, and what models lose for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol, Self

import numpy as np

from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit

Question = tuple[NodeId, tuple[NodeId, ...]]  # a client, and nodes: what loses their mean for it?
ToldApart = tuple[tuple[NodeId, ...], ...]


class Evidence(Protocol):
    """The present models, seen by the clients of `space`.

    Attributes:
        space: The positions of the clients that can be asked.
        round: The present round.
        blind_loss: The loss of a prediction that ignores the input: the unit for losses.
        moved: The clients whose parent has changed since they trained: where they are says where
            they come from.
        told_apart: Clusters that a split made in an earlier round, split by split: their clients
            had trained from one model, and went different ways.
        dmac: How groups are found, as in the first tree.
    """

    @property
    def space(self) -> Space: ...
    @property
    def round(self) -> int: ...
    @property
    def blind_loss(self) -> float: ...
    @property
    def moved(self) -> Collection[NodeId]: ...
    @property
    def told_apart(self) -> ToldApart: ...
    @property
    def dmac(self) -> DmacConfig: ...
    def samples(self, client: NodeId) -> int:
        """How many held-out samples a client has."""
        ...

    def losses(self, questions: Sequence[Question], *, more: bool = False) -> Floats:
        """The held-out loss of the mean model of some nodes for a client, question by question.

        `more` asks for training samples too, where a model of many is judged by one. Of what was
        asked with more samples, the loss on the held-out ones is known without asking again.
        """
        ...

    def after(self, tree: Tree, edits: Sequence[Edit]) -> Self:
        """The evidence for `tree`, which `edits` made, with models for the new clusters."""
        ...


@dataclass(frozen=True)
class DistanceEvidence:
    """A world of squares: a model loses for a client the squared distance between the two.

    So positions alone say everything. For the paper's rules, which ask for no losses, and for
    rules that are looked at without any training. The model of a node is the mean of its clients
    that have a position; without any, it loses infinitely much.
    """

    tree: Tree
    space: Space
    blind_loss: float = 1.0
    round: int = 0
    moved: Collection[NodeId] = ()
    told_apart: ToldApart = ()
    dmac: DmacConfig = field(default_factory=DmacConfig)

    def samples(self, client: NodeId) -> int:
        return 1

    def losses(self, questions: Sequence[Question], *, more: bool = False) -> Floats:
        mean, positions, row_of = cache(self._mean), self.space.positions, self.space.row_of
        apart = (positions[row_of[client]] - mean(nodes) for client, nodes in questions)
        return np.array([difference @ difference for difference in apart])

    def after(self, tree: Tree, edits: Sequence[Edit]) -> DistanceEvidence:
        return replace(self, tree=tree, moved=moved_between(self.tree, tree, self.moved))

    def _mean(self, nodes: tuple[NodeId, ...]) -> Floats:
        clients = [c for node in nodes for c in self.tree.clients_of(node)]
        rows = [self.space.row_of[c] for c in clients if c in self.space.row_of]
        if not rows:
            return np.full(self.space.positions.shape[1], np.inf)
        weights = self.space.weights[rows]
        return np.asarray(np.average(self.space.positions[rows], axis=0, weights=weights))


def moved_between(before: Tree, after: Tree, moved: Collection[NodeId] = ()) -> set[NodeId]:
    """The clients whose parent is another after some edits, besides those that `moved` before."""
    return {*moved, *(c for c in after.clients if after.parent[c] != before.parent.get(c))}
