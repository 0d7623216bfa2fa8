"""The nodes that DMAC joins, and which are near to each other.

`Neighbors` measures everything. `fast.FastNeighbors` measures less, and the tree is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from threadpoolctl import ThreadpoolController

from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import Rows

TIE = 1e-9  # distances that differ by less than this fraction count as equal


class Neighbors:
    """Nodes by row: the clients of a space first, then what they were joined to.

    Attributes:
        alive: The rows that have not been joined to another, in ascending order.
        size: The number of rows in use.
    """

    def __init__(self, space: Space) -> None:
        n, dimensions = space.positions.shape
        most = 2 * n - 1  # every join leaves fewer nodes than before
        self._space = space
        self.positions, self.weights = np.zeros((most, dimensions)), np.zeros(most)
        self.positions[:n], self.weights[:n] = space.positions, space.weights
        self.variances = np.zeros(most)
        self.size, self.alive = n, np.arange(n)

    def distances(self, a: Rows, b: Rows) -> Floats:
        """D of every node in `a` to every one in `b`; infinite to itself."""
        distances = self._space.distances(
            self.positions[a], self.positions[b], self.variances[a], self.variances[b]
        )
        distances[a[:, None] == b[None, :]] = np.inf
        return distances

    def within(self, gamma: float) -> Rows:
        """Nodes among which are all that have another within `gamma` times the smallest D."""
        return self.alive

    def nearest(self) -> tuple[Rows, Rows]:
        """Every node, and its nearest; several times, if several are as near."""
        distances = self.distances(self.alive, self.alive)
        rows, columns = np.nonzero(distances <= distances.min(axis=1)[:, None] * (1 + TIE))
        return self.alive[rows], self.alive[columns]

    def join(self, groups: Sequence[Rows]) -> Rows:
        """Aggregate each group to a new node; return the new nodes' rows."""
        new = np.arange(self.size, self.size + len(groups))
        for row, group in zip(new, groups):
            weights, positions = self.weights[group], self.positions[group]
            self.weights[row] = weights.sum()
            self.positions[row] = np.average(positions, axis=0, weights=weights)
            squares = ((positions - self.positions[row]) ** 2).sum(axis=1)
            self.variances[row] = np.average(squares + self.variances[group], weights=weights)
        self.size += len(groups)
        self.alive = np.append(np.setdiff1d(self.alive, np.concatenate(groups)), new)
        return new


def linked(a: Rows, b: Rows) -> list[Rows]:
    """The groups of nodes that are linked, directly or by way of others, by the links `a` – `b`.

    Each in ascending order, and the groups by the first of each.
    """
    nodes, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
    links = coo_array((np.ones(len(a)), (ends[: len(a)], ends[len(a) :])), shape=(len(nodes),) * 2)
    group_of = connected_components(links, directed=False)[1]
    order = np.argsort(group_of, kind="stable")
    return np.split(nodes[order], np.flatnonzero(np.diff(group_of[order])) + 1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compiled libraries use one thread in here.

    Clustering works on blocks that take a millisecond. Two threads that wait for each other at
    every one of them are little faster on a free machine, and many times slower on a busy one.
    """
    with _controller().limit(limits=1):
        yield


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # to look for all libraries takes milliseconds
