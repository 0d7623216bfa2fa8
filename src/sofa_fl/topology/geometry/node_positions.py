"""Where the nodes of a tree are: a cluster is at the weighted mean of its clients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sofa_fl.topology.tree.tree_arrays import Rows, TreeArrays

if TYPE_CHECKING:
    from sofa_fl.topology.tree import NodeId

Floats = NDArray[np.float64]


class NodePositions:
    """Positions by row of a tree's arrays.

    A client that is not in the space has no position, nor has a cluster of such clients only.

    Attributes:
        weights: The sum of the clients' weights; zero for a node without a position.
        positions: The weighted mean of the clients' positions.
        variances: The weighted mean of the clients' squared distances to that mean.
    """

    def __init__(self, arrays: TreeArrays, positions: Floats, weights: Floats) -> None:
        """Take positions and weights of the clients, in the order of their rows."""
        self.arrays = arrays
        n, clients = len(arrays.nodes), arrays.is_client
        self.weights, self.positions = np.zeros(n), np.zeros((n, positions.shape[1]))
        self.weights[clients], self.positions[clients] = weights, positions
        totals = self.weights[:, None] * self.positions
        levels = list(_levels(arrays))
        for rows, children, starts in levels:
            self.weights[rows] = np.add.reduceat(self.weights[children], starts)
            totals[rows] = np.add.reduceat(totals[children], starts)
        clusters = np.flatnonzero(~clients)
        weights = np.where(self.known, self.weights, 1)[clusters]
        self.positions[clusters] = totals[clusters] / weights[:, None]
        to_parent = self.positions - self.positions[arrays.parents]
        moments = self.weights * np.einsum("ij,ij->i", to_parent, to_parent)
        below = np.zeros(n)
        for rows, children, starts in levels:
            below[rows] = np.add.reduceat(moments[children] + below[children], starts)
        self.variances = np.zeros(n)
        self.variances[clusters] = below[clusters] / weights

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which nodes have a position."""
        return self.weights > 0

    @cached_property
    def num_children(self) -> Rows:
        """How many children of each node have a position."""
        parents = self.arrays.parents[1:][self.known[1:]]
        return np.bincount(parents, minlength=len(self.weights)).astype(np.intp)

    @cached_property
    def unweighted(self) -> NodePositions:
        """The same with every client counted once: weights are then numbers of clients."""
        clients = self.arrays.is_client
        ones = self.known[clients].astype(np.float64)
        return NodePositions(self.arrays, self.positions[clients], ones)

    @cached_property
    def row_of(self) -> dict[NodeId, int]:
        """The rows of the nodes that have a position."""
        rows = np.flatnonzero(self.known).tolist()
        return dict(zip(self.arrays.nodes[rows].tolist(), rows))

    def parents_without(self, rows: Rows) -> tuple[Floats, Floats]:
        """Positions and variances of the parents of `rows`, each without that child."""
        up = self.arrays.parents[rows]
        total, part = self.weights[up], self.weights[rows]
        rest = total - part
        positions = total[:, None] * self.positions[up] - part[:, None] * self.positions[rows]
        positions /= rest[:, None]
        apart = self.positions[rows] - positions
        between = part * rest / total * np.einsum("ij,ij->i", apart, apart)
        variances = (total * self.variances[up] - part * self.variances[rows] - between) / rest
        return positions, np.maximum(0.0, variances)


def _levels(arrays: TreeArrays) -> Iterator[tuple[Rows, Rows, Rows]]:
    """Level by level: the clusters that have children, these children, and where each one's begin.

    So that `np.add.reduceat(values[children], starts)` sums up the children of each cluster.
    """
    children = arrays.by_parent[
        np.argsort(arrays.level[arrays.parents[arrays.by_parent]], kind="stable")
    ]
    parents = arrays.parents[children]
    for level in np.split(
        np.arange(len(children)), np.flatnonzero(np.diff(arrays.level[parents])) + 1
    ):
        starts = np.flatnonzero(np.diff(parents[level], prepend=-1))
        yield parents[level][starts], children[level], starts
