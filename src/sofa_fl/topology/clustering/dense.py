"""DMAC of a few hundred clients, with the same trees: all distances in one matrix.

With average linkage a join is as far from another node as its members are on average, so the
matrix is kept up to date by a few operations a join, and no position is looked at again. The
separation test measures by matrix products, of any number of clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from sofa_fl.topology.clustering.fast import EPS, FastNeighbors
from sofa_fl.topology.clustering.separation import Separation, power_of
from sofa_fl.topology.geometry.space import TIE, Floats, Space, linked
from sofa_fl.topology.tree import Rows

MOST = 512  # clients: for more, one number per node is faster than one per pair
LARGEST = 1e100  # the square of a larger number may be infinite


def quickest(space: Space) -> tuple[FastNeighbors | DenseNodes, FastSeparation]:
    """The nodes that DMAC joins, and the separation test, in the form that takes least time."""
    if is_dense(space):
        return DenseNodes(space), DenseSeparation(space)
    return FastNeighbors(space), FastSeparation(space)


def is_dense(space: Space) -> bool:
    """Whether a space has few clients, and distances whose mean is that of a join."""
    few = space.linkage == "average" and len(space.clients) <= MOST
    return few and float(np.abs(space.positions).max(initial=0.0)) < LARGEST


class DenseNodes:
    """The nodes that are joined, as `Neighbors` has them, by average linkage.

    A node has a slot, which is free once the node is joined to another.

    Attributes:
        size: The number of rows in use.
        alive: The rows that have not been joined to another, and the slot of each.
        _far: How far every slot is from every other, to the power in which distances add up;
            infinite from itself, and if either of them is free.
        _row: The row of each slot.
    """

    def __init__(self, space: Space) -> None:
        self.size = len(space.clients)
        power = power_of(space)
        self._slack = (1 + TIE) ** power
        self._far = space.distances(space.positions, space.positions) ** power
        np.fill_diagonal(self._far, np.inf)
        self._weights = space.weights.tolist()
        self._row = list(range(self.size))
        self.alive = dict(enumerate(self._row))

    def mutual(self) -> list[Rows]:
        """The groups of nodes that are each other's nearest."""
        limits = self._far.min(axis=1) * self._slack
        limits[limits == np.inf] = -1.0  # a free slot is near to none
        near = self._far <= limits[:, None]
        a, b = (ends.tolist() for ends in (near & near.T).nonzero())
        row = self._row
        if len(set(a)) < len(a):  # there are ties
            return linked(np.array([row[k] for k in a]), np.array([row[k] for k in b]))
        return [np.array(sorted((row[i], row[j]))) for i, j in zip(a, b) if i < j]

    def join(self, groups: Sequence[Rows]) -> None:
        """Put one node in the place of each group; it gets the next row."""
        for group in groups:
            first, *others = (self.alive.pop(row) for row in group.tolist())
            for other in others:
                self._join(first, other)
            self._row[first] = self.size
            self.alive[self.size] = first
            self.size += 1
        if 2 * len(self.alive) < len(self._row):
            self._drop_free_slots()

    def _join(self, a: int, b: int) -> None:
        """Join the node of slot `b` to that of slot `a`."""
        far, weights = self._far, self._weights
        total = weights[a] + weights[b]
        mean = far[a] * (weights[a] / total) + far[b] * (weights[b] / total)
        far[b] = far[:, b] = np.inf
        far[a] = far[:, a] = mean  # infinite at `a` and `b`, since so are they from themselves
        weights[a] = total

    def _drop_free_slots(self) -> None:
        kept = sorted(self.alive.values())
        self._far = self._far[np.ix_(kept, kept)]
        self._weights = [self._weights[slot] for slot in kept]
        self._row = [self._row[slot] for slot in kept]
        self.alive = {row: slot for slot, row in enumerate(self._row)}


class FastSeparation(Separation):
    """The separation test by one matrix product: what may be its rounding is zero."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._positions = space.positions
        if space.metric == "euclidean":  # the nearer to zero, the fewer digits a product loses
            self._positions = space.positions - space.positions.mean(axis=0)

    def _distances(self, a: Rows, b: Rows) -> Floats:
        x, y = self._positions[a], self._positions[b]
        if self.space.metric == "manhattan":
            return np.asarray(cdist(x, y, "cityblock"))
        if self.space.metric == "cosine":
            squares, distances = np.ones(len(x)), 1 - x @ y.T
        else:
            squares = np.einsum("ij,ij->i", x, x)
            distances = np.add.outer(squares, np.einsum("ij,ij->i", y, y)) - 2 * (x @ y.T)
        error = 17 * (x.shape[1] + 2) * EPS * squares
        distances[distances <= error[:, None]] = 0.0
        return np.asarray(distances)


class DenseSeparation(FastSeparation):
    """The separation test with the distances of all clients measured at once."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        every = np.arange(len(space.clients))
        self._every = super()._distances(every, every)

    def _distances(self, a: Rows, b: Rows) -> Floats:
        return self._every[a[:, None], b]
