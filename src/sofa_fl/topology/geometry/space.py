"""The positions of clients and nodes, their distances D, and the scale of thresholds.

A cluster's position is the weighted mean of its clients' positions: derived, never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from sofa_fl.errors import TopologyError
from sofa_fl.topology.tree import NodeId, Rows, Tree

Floats = NDArray[np.float64]
DistanceMetric = Literal["euclidean", "manhattan", "cosine"]
Linkage = Literal["centroid", "average"]
ROUNDING = 1e-12  # the relative error that a position may have, by the order of its sums
TIE = 1e-9  # distances that differ by less than this fraction count as equal


class NodeArrays:
    """The weights, positions and variances of nodes, by row.

    Attributes:
        weights: The sum of the clients' weights; zero for a node without a position.
        positions: The weighted mean of the clients' positions.
        variances: The weighted mean of the clients' squared distances to that mean.
    """

    def __init__(self, space: Space, num: int) -> None:
        self._space = space
        self.weights, self.variances = np.zeros(num), np.zeros(num)
        self.positions = np.zeros((num, space.positions.shape[1]))

    def aggregate(self, row: int, members: Rows | list[int]) -> None:
        """Aggregate the rows of some nodes to the row of a node that has them as members."""
        weights, positions = self.weights[members], self.positions[members]
        total = weights.sum()
        mean = (positions * weights[:, None]).sum(axis=0) / total
        squares = ((positions - mean) ** 2).sum(axis=1) + self.variances[members]
        self.weights[row], self.positions[row] = total, mean
        self.variances[row] = (squares * weights).sum() / total

    def between(self, a: Rows | list[int], b: Rows | list[int]) -> Floats:
        """The distances D of all rows in `a` to all in `b`."""
        variances = np.add.outer(self.variances[a], self.variances[b])
        return self._space.distances(self.positions[a], self.positions[b], variances)


class NodePositions(NodeArrays):
    """The positions of the nodes of a tree; `row_of` has the row of each.

    A client that is not in the space has no position, nor has a cluster of such clients only.
    """

    def __init__(self, space: Space, tree: Tree) -> None:
        self.row_of = {node: row for row, node in enumerate(tree.walk())}
        super().__init__(space, len(self.row_of))
        clients = [client for client in space.clients if client in tree.members]
        rows, in_space = self.rows(clients), [space.row_of[client] for client in clients]
        self.weights[rows] = space.weights[in_space]
        self.positions[rows] = space.positions[in_space]
        for cluster in reversed(tree.clusters):  # children before parents
            if children := self.known(tree.children[cluster]):
                self.aggregate(self.row_of[cluster], self.rows(children))

    def known(self, nodes: Iterable[NodeId]) -> list[NodeId]:
        """Those of `nodes` that have a position."""
        return [node for node in nodes if self.weights[self.row_of[node]] > 0]

    def rows(self, nodes: Iterable[NodeId]) -> list[int]:
        return [self.row_of[node] for node in nodes]

    def distances(self, a: Iterable[NodeId], b: Iterable[NodeId]) -> Floats:
        """The distances D of all nodes in `a` to all in `b`."""
        return self.between(self.rows(a), self.rows(b))

    def incoherence(self, nodes: Iterable[NodeId]) -> float:
        """The spread of some nodes as a fraction of the scale of all clients."""
        rows, scale = self.rows(nodes), self._space.scale
        spread = self._space.spread(self.positions[rows], self.weights[rows])
        return spread / scale if scale > 0 else 0.0


class Neighbors(NodeArrays):
    """The nodes that DMAC joins, by row: the clients of a space first, then every join.

    Attributes:
        alive: The rows that have not been joined to another, in ascending order.
        size: The number of rows in use.
    """

    def __init__(self, space: Space) -> None:
        n = len(space.clients)
        super().__init__(space, 2 * n - 1)  # every join leaves fewer nodes than before
        self.positions[:n], self.weights[:n] = space.positions, space.weights
        self.size, self.alive = n, np.arange(n)
        self._measured: Floats | None = None  # D of all that are alive, once `mutual` was asked

    def distances(self, a: Rows, b: Rows) -> Floats:
        """D of every node in `a` to every one in `b`; infinite to itself."""
        distances = self.between(a, b)
        distances[a[:, None] == b[None, :]] = np.inf
        return distances

    def within(self, gamma: float) -> Rows:
        """Nodes among which are all that have another within `gamma` times the smallest D."""
        return self.alive

    def mutual(self) -> list[Rows]:
        """The groups of nodes that are each other's nearest; several may be as near."""
        if self._measured is None:
            self._measured = self.distances(self.alive, self.alive)
        distances = self._measured
        near = distances <= distances.min(axis=1)[:, None] * (1 + TIE)
        a, b = (near & near.T).nonzero()
        return linked(self.alive[a], self.alive[b])

    def join(self, groups: Sequence[Rows]) -> Rows:
        """Aggregate each group to a new node; return the new nodes' rows."""
        new = np.arange(self.size, self.size + len(groups))
        for row, group in zip(new.tolist(), groups):
            self.aggregate(row, group)
        stay = np.ones(self.size, dtype=bool)
        stay[np.concatenate(groups)] = False
        stay = stay[self.alive]
        self.size += len(groups)
        self.alive = np.append(self.alive[stay], new)
        if self._measured is not None:  # only the new nodes' distances are new
            n = len(self.alive)
            measured, self._measured = self._measured, np.empty((n, n))
            self._measured[: -len(new), : -len(new)] = measured[np.ix_(stay, stay)]
            self._measured[-len(new) :] = self.distances(new, self.alive)
            self._measured[:, -len(new) :] = self._measured[-len(new) :].T
        return new


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
        if self.metric == "manhattan" and self.linkage == "average":
            raise TopologyError("average linkage needs the euclidean or the cosine metric")
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
        elif self.metric == "manhattan":
            distances = np.asarray(cdist(a, b, "cityblock"))
        else:
            distances = np.asarray(cdist(a, b))
            if self.linkage == "average":
                distances = np.sqrt(distances**2 + variances)
        distances[distances <= ROUNDING * np.add.outer(self.lengths(a), self.lengths(b))] = 0.0
        return distances

    def sibling_pairs(self, tree: Tree) -> list[tuple[NodeId, NodeId, float]]:
        """All pairs of sibling clusters and their distances D, parent by parent, nearest first."""
        nodes, pairs = self.locate(tree), list[tuple[NodeId, NodeId, float]]()
        for parent in tree.clusters:
            siblings = nodes.known(n for n in tree.children[parent] if n not in tree.members)
            distances = nodes.distances(siblings, siblings)
            a, b = np.triu_indices(len(siblings), 1)
            for k in np.argsort(distances[a, b], kind="stable").tolist():
                pairs.append((siblings[a[k]], siblings[b[k]], float(distances[a[k], b[k]])))
        return pairs

    def lengths(self, positions: Floats) -> Floats:
        """The norms of positions; for the cosine metric, the euclidean ones."""
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
    def trees(self) -> dict[tuple[NodeId, ...], Tree]:
        """What DMAC made of some of the clients: it can be asked before the tree is needed."""
        return {}

    def locate(self, tree: Tree) -> NodePositions:
        """The positions of all nodes of `tree`."""
        return NodePositions(self, tree)


def unit_rows(vectors: Floats) -> Floats:
    """The directions of the rows; a row of zeros has none and stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1))


def linked(a: Rows, b: Rows) -> list[Rows]:
    """The groups of nodes linked by `a` – `b`, each ascending, the groups by their first."""
    if len(a) == 2 and a[0] == b[1] and a[1] == b[0]:  # one pair, from both sides: frequent
        return [np.sort(a)]
    first = np.arange(1 + max(a.max(), b.max()))  # the smallest node known to be linked to each
    while (first[a] != first[b]).any():
        np.minimum.at(first, a, first[b])
        np.minimum.at(first, b, first[a])
        first = first[first]
    nodes = np.unique(np.concatenate([a, b]))
    order = np.argsort(first[nodes], kind="stable")
    return np.split(nodes[order], np.flatnonzero(np.diff(first[nodes][order])) + 1)
