"""Where the clients are, and how far apart: one position per client, a metric, one scale.

A cluster's position is the weighted mean of its clients' positions: derived, never stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from sofa_fl.errors import TopologyError
from sofa_fl.topology.tree.tree import NodeId, Rows, Tree, TreeArrays

Floats = NDArray[np.float64]
Metric = Literal["euclidean", "manhattan", "cosine"]
Linkage = Literal["centroid", "average"]
ROUNDING = 1e-12  # by this fraction of its length a position may depend on how it was computed


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

    def children(self, row: int) -> Rows:
        """The children of a node that have a position."""
        rows = self.arrays.children(row)
        return rows[self.known[rows]]

    def ids(self, rows: Rows) -> tuple[NodeId, ...]:
        return tuple(NodeId(node) for node in self.arrays.nodes[rows].tolist())


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


@dataclass(frozen=True)
class Space:
    """The positions of the clients: row `i` of `positions` and `weights` is that of `clients[i]`.

    Attributes:
        linkage: How far apart two nodes are: as their positions are (`centroid`, as in the paper),
            or as their clients are (`average`: the root mean square over all pairs of one's
            clients and the other's). The mean of many clients is less noisy than that of few, so
            by centroid large clusters look near to everything; by average size does not matter.
    """

    clients: tuple[NodeId, ...]
    positions: Floats
    weights: Floats
    metric: Metric = "euclidean"
    linkage: Linkage = "centroid"

    def __post_init__(self) -> None:
        if self.positions.ndim != 2 or len(self.positions) != len(self.clients):
            raise TopologyError(
                f"positions must be one row per client: {len(self.clients)} clients, "
                f"positions of shape {self.positions.shape}"
            )
        if len(self.weights) != len(self.clients) or not np.all(self.weights > 0):
            raise TopologyError("every client needs a weight above zero")
        if not np.isfinite(self.positions).all():
            rows = np.flatnonzero(~np.isfinite(self.positions).all(axis=1))
            bad = [self.clients[row] for row in rows]
            raise TopologyError(f"positions of clients {bad} are not finite")
        if self.metric == "manhattan" and self.linkage == "average":
            raise TopologyError("average linkage needs the euclidean or the cosine metric")
        if self.metric == "cosine":  # only directions count
            object.__setattr__(self, "positions", unit_rows(self.positions))

    def distances(
        self, a: Floats, b: Floats, variance_a: Floats | float = 0.0, variance_b: Floats | float = 0
    ) -> Floats:
        """Distance of every position in `a` to every one in `b`.

        The variances are those of the nodes at these positions: `average` linkage needs them.
        What rounding alone can make is no distance: equal clients, whose means differ in the last
        digit, must not be told apart.
        """
        if self.metric == "cosine":
            if self.linkage == "centroid":  # a mean of directions is shorter than these
                a, b = unit_rows(a), unit_rows(b)
            distances = np.clip(1 - a @ b.T, 0, 2)
        elif self.metric == "manhattan":
            distances = np.asarray(cdist(a, b, "cityblock"))
        else:
            distances = np.asarray(cdist(a, b))
            if self.linkage == "average":
                variances = np.add.outer(np.zeros(len(a)) + variance_a, variance_b)
                distances = np.sqrt(distances**2 + variances)
        distances[distances <= ROUNDING * np.add.outer(self._norms(a), self._norms(b))] = 0.0
        return distances

    def node_distances(self, nodes: NodePositions, a: Rows, b: Rows) -> Floats:
        """The distances D of all nodes in `a` to all in `b`."""
        return self.distances(
            nodes.positions[a], nodes.positions[b], nodes.variances[a], nodes.variances[b]
        )

    def sibling_pairs(self, tree: Tree) -> list[tuple[NodeId, NodeId, float]]:
        """All pairs of sibling clusters and their distances D, parent by parent, nearest first."""
        nodes, pairs = self.locate(tree), list[tuple[NodeId, NodeId, float]]()
        for parent in np.flatnonzero(nodes.num_children > 1).tolist():
            rows = nodes.children(parent)
            rows = rows[~nodes.arrays.is_client[rows]]
            a, b = np.triu_indices(len(rows), 1)
            if len(a):
                distances = self.node_distances(nodes, rows, rows)[a, b]
                order = np.argsort(distances, kind="stable")
                a, b = rows[a[order]], rows[b[order]]
                pairs += zip(nodes.ids(a), nodes.ids(b), distances[order].tolist())
        return pairs

    def paired_distances(
        self, a: Floats, b: Floats, variance_a: Floats | float = 0.0, variance_b: Floats | float = 0
    ) -> Floats:
        """As `distances`, of each position in `a` to that in the same row of `b`."""
        if self.metric == "cosine":
            if self.linkage == "centroid":
                a, b = unit_rows(a), unit_rows(b)
            distances = np.clip(1 - np.einsum("ij,ij->i", a, b), 0, 2)
        elif self.metric == "manhattan":
            distances = np.abs(a - b).sum(axis=1)
        else:
            squares = np.einsum("ij,ij->i", a - b, a - b)
            if self.linkage == "average":
                squares = squares + variance_a + variance_b
            distances = np.sqrt(squares)
        distances[distances <= ROUNDING * (self._norms(a) + self._norms(b))] = 0.0
        return np.asarray(distances)

    def _norms(self, positions: Floats) -> Floats:
        if self.metric == "manhattan":
            return np.asarray(np.abs(positions).sum(axis=1))
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", positions, positions)))

    def spread(self, positions: Floats, weights: Floats) -> float:
        """RMS distance of the positions to their mean, corrected for their number.

        Without the correction, n / (n - 1), a small cluster would look tighter than a large one
        drawn from the same clients.
        """
        n = len(positions)
        if n < 2:
            return 0.0
        mean = np.average(positions, axis=0, weights=weights)[None, :]
        squares = self.paired_distances(positions, mean) ** 2
        return float(np.sqrt(np.average(squares, weights=weights) * n / (n - 1)))

    @cached_property
    def scale(self) -> float:
        """Spread of all clients: what thresholds are fractions of."""
        return self.spread(self.positions, self.weights)

    def incoherence(self, positions: Floats, weights: Floats) -> float:
        """Spread of some nodes as a fraction of the scale."""
        return self.spread(positions, weights) / self.scale if self.scale > 0 else 0.0

    def incoherences(self, nodes: NodePositions) -> Floats:
        """That of the children of every node of a tree, by row; zero for those without."""
        parents, n = nodes.arrays.parents[1:], nodes.num_children
        if self.scale <= 0:
            return np.zeros(len(n))
        distances = self.paired_distances(nodes.positions[1:], nodes.positions[parents])
        sums = np.bincount(parents, nodes.weights[1:] * distances**2, minlength=len(n))
        several = np.flatnonzero(n > 1)
        squares = sums[several] / nodes.weights[several] * n[several] / (n[several] - 1)
        incoherences = np.zeros(len(n))
        incoherences[several] = np.sqrt(squares) / self.scale
        return incoherences

    def incoherence_of(self, tree: Tree) -> dict[NodeId, float]:
        """That of the children of every node of a tree, by node."""
        values = self.incoherences(self.locate(tree)).tolist()
        return dict(zip(map(NodeId, tree.arrays.nodes.tolist()), values))

    @cached_property
    def row_of(self) -> dict[NodeId, int]:
        """The row of each client."""
        return {client: row for row, client in enumerate(self.clients)}

    @cached_property
    def _last_located(self) -> list[tuple[Tree, NodePositions]]:
        """One rule after the other asks for the same tree."""
        return []

    def locate(self, tree: Tree) -> NodePositions:
        """The positions of all nodes of `tree`."""
        if not self._last_located or self._last_located[0][0] is not tree:
            clients = tree.arrays.nodes[tree.arrays.is_client].tolist()
            rows = np.array([self.row_of.get(client, -1) for client in clients])
            weights = np.where(rows >= 0, self.weights[rows], 0.0)
            self._last_located[:] = [
                (tree, NodePositions(tree.arrays, self.positions[rows], weights))
            ]
        return self._last_located[0][1]


def coordinates(products: Floats) -> Floats:
    """Points with these inner products, in as many dimensions as there are points.

    A thousand models of a million weights lie in a thousand dimensions; euclidean and cosine
    distances, means and k-means are the same there.
    """
    values, axes = np.linalg.eigh(products)
    noise = 16 * np.finfo(np.float64).eps * values.max()  # its root would set equal rows apart
    return np.asarray(axes * np.sqrt(np.where(values > noise, values, 0)), dtype=np.float64)


def unit_rows(vectors: Floats) -> Floats:
    """The directions of the rows; a row of zeros has none and stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1))
