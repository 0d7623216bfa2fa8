"""DMAC, dynamic multi-branch agglomerative clustering: the first tree (the paper's Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from threadpoolctl import ThreadpoolController

from sofa_fl.errors import TopologyError
from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.separation import without_chance
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Rows, Tree

TIE = 1e-9  # distances that differ by less than this fraction count as equal


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


class Neighbors:
    """The nodes that are joined, by row: the clients of a space first, then every join.

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

    def mutual(self) -> list[Rows]:
        """The groups of nodes that are each other's nearest."""
        return mutual(*self.nearest())

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

    @property
    def num_alive(self) -> int:
        return len(self.alive)


class Nodes(Protocol):
    """What `dendrogram` needs of the nodes that it joins."""

    size: int

    @property
    def num_alive(self) -> int: ...

    def mutual(self) -> list[Rows]: ...

    def join(self, groups: Sequence[Rows]) -> object: ...


Nearness = Callable[[Space], Neighbors]


def linked(a: Rows, b: Rows) -> list[Rows]:
    """The groups of nodes linked by `a` – `b`, each ascending, the groups by their first."""
    nodes, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
    links = coo_array((np.ones(len(a)), (ends[: len(a)], ends[len(a) :])), shape=(len(nodes),) * 2)
    group_of = connected_components(links, directed=False)[1]
    order = np.argsort(group_of, kind="stable")
    return np.split(nodes[order], np.flatnonzero(np.diff(group_of[order])) + 1)


@dataclass(frozen=True)
class Dendrogram:
    """Joins by row: the clients of a space are the first rows, every join is one more.

    Attributes:
        joins: The members of each join, all of them earlier rows.
        clients: The rows of the clients in every row.
    """

    joins: list[list[int]]
    clients: list[Rows]


def dendrogram(nodes: Nodes) -> Dendrogram:
    """Join the nearest until one is left; those at the same distance in one.

    With average linkage, joining two that are each other's nearest brings nobody nearer to
    anybody: so all such pairs can be joined at once, and the tree is that of one join at a time.
    """
    joins = list[list[int]]()
    clients = [np.array([row]) for row in range(nodes.size)]
    rank = list(range(nodes.size))  # a new node takes the rank of its first member
    while nodes.num_alive > 1:
        groups = sorted(nodes.mutual(), key=lambda group: min(rank[r] for r in group))
        nodes.join(groups)
        for group in groups:
            joins.append(group.tolist())
            clients.append(np.concatenate([clients[member] for member in group]))
            rank.append(rank[group[0]])
    return Dendrogram(joins, clients)


def mutual(nodes: Rows, nearest: Rows) -> list[Rows]:
    """The groups of nodes that are each other's nearest, given the nearest of every node."""
    most = 1 + int(nodes.max())
    both = np.isin(nodes * most + nearest, nearest * most + nodes)
    a, b = nodes[both], nearest[both]
    if len(a) > len(np.unique(a)):  # there are ties
        return linked(a, b)
    pairs = np.stack([a, b], axis=1)[a < b]
    return list(pairs[np.argsort(pairs[:, 0])])


@one_thread()
def dmac(
    space: Space, config: DmacConfig, first: int = 0, neighbors: Nearness | None = None
) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward.

    Clusters get ids from `first` on, and above all clients': smaller ones are left for clients
    that may join. With the plain `Neighbors` the tree is the same as by default, and it takes
    longer.
    """
    from sofa_fl.topology.clustering.fast import FastNeighbors  # these are made of what is here
    from sofa_fl.topology.clustering.gaps import build_by_gaps

    first = max(first, 1 + max(space.clients))
    if config.increase is None:
        tree = build_by_gaps(space, first, neighbors)
        return without_chance(tree, space) if config.certain else tree
    return build_by_threshold(space, config.increase, first, neighbors or FastNeighbors)


def paper_dmac(
    space: Space, config: DmacConfig, first: int = 0, neighbors: Nearness | None = None
) -> Tree:
    """Algorithm 1 as the paper writes it, with γ = `config.increase`."""
    if config.increase is None:
        raise TopologyError(
            "the paper's DMAC needs the increasing factor gamma, got none: set dmac.increase"
        )
    return dmac(space, config, first, neighbors)


def build_by_threshold(space: Space, gamma: float, first: int, neighbors: Nearness) -> Tree:
    """Join all pairs (n_u, n_v) with D(n_u, n_v) ≤ τ · γ, where τ = min D, until one node is left.

    Pairs that share a node are joined to one cluster, which stands at the weighted mean of its
    clients. Chosen: distances that only rounding tells apart are equal.
    """
    nodes, num = neighbors(space), len(space.clients)
    ids = [*space.clients, *(NodeId(first + k) for k in range(num - 1))]  # by row of `nodes`
    parent: dict[NodeId, NodeId | None] = {}
    while len(nodes.alive) > 1:
        rows = nodes.within(gamma)
        distances = nodes.distances(rows, rows)
        tau = distances.min()
        u, v = (distances <= tau * gamma * (1 + TIE)).nonzero()
        groups = linked(rows[u], rows[v])
        for cluster, group in zip(nodes.join(groups), groups):
            parent |= {ids[member]: ids[cluster] for member in group}
    return Tree({ids[nodes.size - 1]: None, **parent}, space.clients, first + nodes.size - num)
