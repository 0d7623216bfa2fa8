"""Positions of clients and clusters, one at a time or all nodes of a tree together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sofa_fl.topology.tree.tree_arrays import Rows, TreeArrays, interval_sums, slices

if TYPE_CHECKING:
    from sofa_fl.topology.tree import NodeId

Floats = NDArray[np.float64]
ROUNDING = 1e-12  # what two ways to compute the same place may differ by, of its length


@dataclass(frozen=True, slots=True)
class Body:
    """A client or a set of clients in space.

    Attributes:
        place: The weighted mean of the clients' positions.
        weight: The sum of the clients' weights.
        inertia: The weighted mean of the clients' squared distances to `place`.
    """

    position: Floats
    weight: float
    inertia: float = 0.0


def join(bodies: Sequence[Body]) -> Body:
    """All clients of `bodies` as one body."""
    weights = np.array([body.weight for body in bodies])
    positions = np.stack([body.position for body in bodies])
    place = np.average(positions, axis=0, weights=weights)
    between = ((positions - place) ** 2).sum(axis=1)
    within = np.array([body.inertia for body in bodies])
    return Body(place, float(weights.sum()), float(np.average(between + within, weights=weights)))


def pick(bodies: Mapping[NodeId, Body], nodes: Iterable[NodeId]) -> list[Body]:
    return [bodies[node] for node in nodes]


class NodePositions(Mapping["NodeId", Body]):
    """The nodes of a tree in space, by row of its order; a node without clients is nowhere.

    Attributes:
        positions: Zero for a node that is nowhere.
        weights: Zero for a node that is nowhere.
        inertia: As in `Body`.
    """

    def __init__(self, order: TreeArrays, positions: Floats, weights: Floats) -> None:
        """Of the clients' positions and weights, in the order of their rows."""
        self.order = order
        n = len(order.nodes)
        clients, clusters = np.flatnonzero(order.is_client), np.flatnonzero(~order.is_client)
        low = order.clients_before[clusters]
        high = order.clients_before[clusters + order.size[clusters]]
        self.positions, self.weights = np.empty((n, positions.shape[1])), np.zeros(n)
        self.positions[clients], self.weights[clients] = positions, weights
        total = interval_sums(weights, low, high)
        self.weights[clusters] = total
        some = np.where(total > 0, total, 1)
        sums = interval_sums(positions * weights[:, None], low, high)
        self.positions[clusters] = sums / some[:, None]
        # How far each is from its parent adds up to how far all below a cluster are from it.
        moments = self.weights * self.squares_to_parent
        self.inertia = np.zeros(n)
        self.inertia[clusters] = (
            interval_sums(moments, clusters + 1, clusters + order.size[clusters]) / some
        )

    @cached_property
    def squares_to_parent(self) -> Floats:
        """Squared euclidean distance of every place to its parent's; zero for the root."""
        squares, up = np.zeros(len(self.positions)), self.order.up
        for some in slices(len(up) - 1, self.positions.shape[1]):
            rows = slice(some.start + 1, some.stop + 1)
            away = self.positions[rows] - self.positions[up[rows]]
            squares[rows] = np.einsum("ij,ij->i", away, away)
        return squares

    @cached_property
    def rounding(self) -> float:
        """What a squared spread may be above what the space says: it takes trifles for nothing."""
        return 16 * ROUNDING**2 * float(np.einsum("ij,ij->i", self.positions, self.positions).max())

    @cached_property
    def scatter(self) -> Floats:
        """The squared distances of the children to each, summed by weight."""
        moments = self.weights * self.squares_to_parent
        scatter = np.zeros(len(moments))
        np.add.at(scatter, self.order.up[1:], moments[1:])
        return scatter

    @property
    def settled(self) -> NDArray[np.bool_]:
        """Which nodes are somewhere: a cluster all of whose clients were grafted is not."""
        return self.weights > 0

    @cached_property
    def num_children(self) -> Rows:
        """How many children of each are somewhere."""
        up = self.order.up[1:][self.settled[1:]]
        return np.bincount(up, minlength=len(self.weights)).astype(np.intp)

    @cached_property
    def num(self) -> Rows:
        """How many clients that are somewhere there are in each."""
        clients = self.order.is_client & self.settled
        before = np.concatenate([[0], np.cumsum(clients)])
        return np.asarray(before[np.arange(len(clients)) + self.order.size] - before[:-1], np.intp)

    @cached_property
    def even(self) -> NodePositions:
        """The same with every client counted once."""
        clients = self.order.is_client
        weights = self.weights[clients & self.settled]
        if (weights == weights[:1]).all():
            return self
        ones = self.settled[clients].astype(np.float64)
        return NodePositions(self.order, self.positions[clients], ones)

    def rest(self, rows: Rows) -> tuple[Floats, Floats]:
        """Positions and inertias of the parents of `rows`, each without that child."""
        up = self.order.up[rows]
        whole, part = self.weights[up], self.weights[rows]
        left = whole - part
        positions = whole[:, None] * self.positions[up] - part[:, None] * self.positions[rows]
        positions /= left[:, None]
        away = self.positions[rows] - positions
        between = part * left / whole * np.einsum("ij,ij->i", away, away)
        inertia = (whole * self.inertia[up] - part * self.inertia[rows] - between) / left
        return positions, np.maximum(0.0, inertia)

    @cached_property
    def _row(self) -> dict[int, int]:
        return {int(self.order.nodes[row]): int(row) for row in np.flatnonzero(self.settled)}

    def __getitem__(self, node: NodeId) -> Body:
        row = self._row[node]
        return Body(self.positions[row], float(self.weights[row]), float(self.inertia[row]))

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._row)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._row)
