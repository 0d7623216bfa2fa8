"""The positions of clients and nodes, their distances D, and the scale of thresholds.

A cluster's position is the weighted mean of its clients' positions: derived, never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from sofa_fl.errors import TopologyError
from sofa_fl.topology.tree import NodeId, Rows, Tree

Floats = NDArray[np.float64]
DistanceMetric = Literal["euclidean", "cosine"]
Linkage = Literal["centroid", "average"]
ROUNDING = 1e-12  # the relative error that a position may have, by the order of its sums
TIE = 1e-9  # distances that differ by less than this fraction count as equal


class NodePositions:
    """The positions of the nodes of a tree; `row_of` has the row of each.

    A client that is not in the space has no position, nor has a cluster of such clients only.

    Attributes:
        weights: The sum of the clients' weights; zero for a node without a position.
        positions: The weighted mean of the clients' positions.
        variances: The weighted mean of the clients' squared distances to that mean.
    """

    def __init__(self, space: Space, tree: Tree) -> None:
        self._space = space
        self.row_of = {node: row for row, node in enumerate(tree.walk())}
        num = len(self.row_of)
        self.weights, self.variances = np.zeros(num), np.zeros(num)
        self.positions = np.zeros((num, space.positions.shape[1]))
        clients = [client for client in space.clients if client in tree.members]
        rows, in_space = self.rows(clients), [space.row_of[client] for client in clients]
        self.weights[rows] = space.weights[in_space]
        self.positions[rows] = space.positions[in_space]
        for cluster in reversed(tree.clusters):  # children before parents
            if children := self.rows(self.known(tree.children[cluster])):
                row = self.row_of[cluster]
                self.weights[row], self.positions[row], self.variances[row] = joined(
                    self.weights[children], self.positions[children], self.variances[children]
                )

    def known(self, nodes: Iterable[NodeId]) -> list[NodeId]:
        """Those of `nodes` that have a position."""
        return [node for node in nodes if self.weights[self.row_of[node]] > 0]

    def rows(self, nodes: Iterable[NodeId]) -> list[int]:
        return [self.row_of[node] for node in nodes]

    def distances(self, a: Iterable[NodeId], b: Iterable[NodeId]) -> Floats:
        """The distances D of all nodes in `a` to all in `b`."""
        rows, columns = self.rows(a), self.rows(b)
        variances = np.add.outer(self.variances[rows], self.variances[columns])
        return self._space.distances(self.positions[rows], self.positions[columns], variances)

    def incoherence(self, nodes: Iterable[NodeId]) -> float:
        """The spread of some nodes as a fraction of the scale of all clients."""
        rows, scale = self.rows(nodes), self._space.scale
        spread = self._space.spread(self.positions[rows], self.weights[rows])
        return spread / scale if scale > 0 else 0.0


def joined(weights: Floats, positions: Floats, variances: Floats) -> tuple[float, Floats, float]:
    """The weight, position and variance of a node that has nodes with these."""
    total = weights.sum()
    mean = (positions * weights[:, None]).sum(axis=0) / total
    squares = ((positions - mean) ** 2).sum(axis=1) + variances
    return float(total), mean, float((squares * weights).sum() / total)


@dataclass(frozen=True)
class Space:
    """The positions of the clients: row `i` of `positions` and `weights` is that of `clients[i]`.

    Attributes:
        linkage: The distance D of two nodes: that of their positions (`centroid`, as in the
            paper), or the root mean square over all pairs of a client of one and a client of the
            other (`average`). The mean of many clients is less noisy than that of few, so with
            `centroid`, large clusters are near to everything; with `average`, size does not matter.
    """

    clients: tuple[NodeId, ...]
    positions: Floats
    weights: Floats
    metric: DistanceMetric = "euclidean"
    linkage: Linkage = "centroid"

    def __post_init__(self) -> None:
        if self.positions.ndim != 2 or len(self.positions) != len(self.clients):
            raise TopologyError(
                f"positions must be one row per client: {len(self.clients)} clients, "
                f"positions of shape {self.positions.shape}"
            )
        if len(self.weights) != len(self.clients) or not np.all(self.weights > 0):
            raise TopologyError("every client needs a weight above zero")
        rows = np.flatnonzero(~np.isfinite(self.positions).all(axis=1))
        if bad := [self.clients[row] for row in rows]:
            raise TopologyError(f"positions of clients {bad} are not finite")
        if self.metric == "cosine":  # only directions count
            object.__setattr__(self, "positions", unit_rows(self.positions))

    def distances(self, a: Floats, b: Floats, variances: Floats | float = 0.0) -> Floats:
        """Distance of every position in `a` to every one in `b`.

        For `average` linkage, `variances` has the sums of both nodes' variances. Distances no
        larger than rounding errors are 0: the means of equal clients may differ in the last digit.
        """
        if self.metric == "cosine":
            if self.linkage == "centroid":  # a mean of directions is shorter than these
                a, b = unit_rows(a), unit_rows(b)
            distances = np.clip(1 - a @ b.T, 0, 2)
        else:
            distances = np.asarray(cdist(a, b))
            if self.linkage == "average":
                distances = np.sqrt(distances**2 + variances)
        distances[distances <= ROUNDING * np.add.outer(norms(a), norms(b))] = 0.0
        return distances

    def sibling_pairs(self, tree: Tree) -> list[tuple[NodeId, NodeId, float]]:
        """All pairs of sibling clusters and their distances D, parent by parent, nearest first.

        Those that are as near stay in their order.
        """
        nodes, pairs = self.locate(tree), list[tuple[NodeId, NodeId, float]]()
        for parent in tree.clusters:
            siblings = nodes.known(n for n in tree.children[parent] if n not in tree.members)
            distances = nodes.distances(siblings, siblings)
            a, b = np.triu_indices(len(siblings), 1)
            for k in nearest_first(distances[a, b]).tolist():
                pairs.append((siblings[a[k]], siblings[b[k]], float(distances[a[k], b[k]])))
        return pairs

    def spread(self, positions: Floats, weights: Floats) -> float:
        """RMS distance of the positions to their mean, corrected for their number.

        Without the correction, n / (n - 1), a small cluster would look tighter than a large one
        drawn from the same clients.
        """
        n = len(positions)
        if n < 2:
            return 0.0
        mean = np.average(positions, axis=0, weights=weights)[None, :]
        squares = self.distances(positions, mean)[:, 0] ** 2
        return float(np.sqrt(np.average(squares, weights=weights) * n / (n - 1)))

    @cached_property
    def scale(self) -> float:
        """Spread of all clients, the unit of thresholds."""
        return self.spread(self.positions, self.weights)

    def incoherence_of(self, tree: Tree) -> dict[NodeId, float]:
        """The incoherence of the children of every cluster of a tree."""
        nodes = self.locate(tree)
        return {c: nodes.incoherence(nodes.known(tree.children[c])) for c in tree.clusters}

    @cached_property
    def row_of(self) -> dict[NodeId, int]:
        """The row of each client."""
        return {client: row for row, client in enumerate(self.clients)}

    @cached_property
    def squares(self) -> Floats:
        """The distances of all pairs of clients, in the power in which noise adds up.

        The square of a euclidean distance is the true one plus the noise of both clients; one minus
        the cosine is a square already.
        """
        if self.metric == "cosine":
            return self.distances(self.positions, self.positions)
        lengths = np.einsum("ij,ij->i", self.positions, self.positions)
        squares = np.add.outer(lengths, lengths) - 2 * self.positions @ self.positions.T
        squares[squares <= ROUNDING * np.add.outer(lengths, lengths)] = 0.0
        return np.asarray(squares)

    def of(self, clients: Sequence[NodeId]) -> Space:
        """The space of some of the clients."""
        rows = [self.row_of[client] for client in clients]
        space = replace(
            self,
            clients=tuple(clients),
            positions=self.positions[rows],
            weights=self.weights[rows],
        )
        space.__dict__["squares"] = self.squares[np.ix_(rows, rows)]
        return space

    def locate(self, tree: Tree) -> NodePositions:
        """The positions of all nodes of `tree`."""
        return NodePositions(self, tree)


def unit_rows(vectors: Floats) -> Floats:
    """The directions of the rows; a row of zeros has none and stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1))


def norms(vectors: Floats) -> Floats:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)))


def nearest_first(distances: Floats) -> Rows:
    """The order of distances; those that differ only by rounding keep theirs."""
    order = np.argsort(distances, kind="stable")
    ascending = distances[order]
    rank = np.cumsum(np.diff(ascending, prepend=ascending[:1]) > TIE * ascending)
    return np.asarray(order[np.lexsort((order, rank))])
