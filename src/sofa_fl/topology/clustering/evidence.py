"""What the rules of SHAPE decide by: where clients are, and what models lose for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, apply_all

Question = tuple[NodeId, tuple[NodeId, ...]]  # a client, and nodes: what loses their mean for it?

# The same for mixtures of a node's model and the mean of some nodes: client, node, nodes.
MixedQuestion = tuple[NodeId, NodeId, tuple[NodeId, ...]]
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)  # of the node's own model in a mixture


class Evidence(Protocol):
    """The present models, seen by the clients of `space`.

    Attributes:
        space: The positions of the clients that can be asked.
        round: The present round.
        blind_loss: The loss of a prediction that ignores the input: the unit for losses.
        went_on: The clients that went on from their own models in this round. How far they are from
            siblings that started from their parent's says only that.
    """

    @property
    def space(self) -> Space: ...
    @property
    def round(self) -> int: ...
    @property
    def blind_loss(self) -> float: ...
    @property
    def went_on(self) -> Collection[NodeId]: ...
    def samples(self, client: NodeId) -> int:
        """How many held-out samples a client has."""
        ...

    def losses(self, questions: Sequence[Question], *, more: bool = False) -> Floats:
        """The held-out loss of the mean model of some nodes for a client, question by question.

        `more` asks for training samples too, where a model of many is judged by one.
        """
        ...

    def mixed(self, questions: Sequence[MixedQuestion]) -> Floats:
        """The held-out losses of mixtures, row by row, from the mean of nodes to the node alone."""
        ...

    def after(self, tree: Tree, edits: Sequence[Edit]) -> Self:
        """The evidence after `edits` of `tree`, with models for the new clusters."""
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
    went_on: Collection[NodeId] = ()

    def samples(self, client: NodeId) -> int:
        return 1

    def losses(self, questions: Sequence[Question], *, more: bool = False) -> Floats:
        means = {nodes: self._mean(nodes) for _, nodes in questions}
        at, row = self.space.positions, self.space.row_of
        apart = [at[row[client]] - means[nodes] for client, nodes in questions]
        return np.array([float(a @ a) for a in apart], dtype=np.float64)

    def mixed(self, questions: Sequence[MixedQuestion]) -> Floats:
        at, row = self.space.positions, self.space.row_of
        weights = np.array(WEIGHTS)[:, None]
        found = []
        for client, node, nodes in questions:
            mixtures = (1 - weights) * self._mean(nodes) + weights * self._mean((node,))
            found.append(((at[row[client]] - mixtures) ** 2).sum(axis=1))
        return np.array(found)

    def after(self, tree: Tree, edits: Sequence[Edit]) -> DistanceEvidence:
        return DistanceEvidence(apply_all(tree, edits), self.space, self.blind_loss, self.round)

    def _mean(self, nodes: tuple[NodeId, ...]) -> Floats:
        clients = [c for node in nodes for c in self.tree.clients_of(node)]
        rows = [self.space.row_of[c] for c in clients if c in self.space.row_of]
        if not rows:
            return np.full(self.space.positions.shape[1], np.inf)
        weights = self.space.weights[rows]
        return np.asarray(np.average(self.space.positions[rows], axis=0, weights=weights))
