"""DMAC, dynamic multi-branch agglomerative clustering: the first tree (the paper's Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
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
from sofa_fl.topology.geometry.space import Floats, NodeArrays, Space
from sofa_fl.topology.tree import NodeId, Rows, Tree

TIE = 1e-9  # distances that differ by less than this fraction count as equal
_controller = cache(ThreadpoolController)  # to look for all libraries takes milliseconds


@contextmanager
def one_thread() -> Iterator[None]:
    """Compiled libraries use one thread in here.

    Clustering works on blocks that take a millisecond. Two threads that wait for each other at
    every one of them are little faster on a free machine, and many times slower on a busy one.
    """
    with _controller().limit(limits=1):
        yield


class Neighbors(NodeArrays):
    """The nodes that are joined, by row: the clients of a space first, then every join.

    Attributes:
        alive: The rows that have not been joined to another, in ascending order.
        size: The number of rows in use.
    """

    def __init__(self, space: Space) -> None:
        n = len(space.clients)
        super().__init__(space, 2 * n - 1)  # every join leaves fewer nodes than before
        self.positions[:n], self.weights[:n] = space.positions, space.weights
        self.size, self.alive = n, np.arange(n)

    def distances(self, a: Rows, b: Rows) -> Floats:
        """D of every node in `a` to every one in `b`; infinite to itself."""
        distances = self.between(a, b)
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

    def links(self) -> tuple[Rows, Rows]:
        """The ends of the links between nodes that are each other's nearest, either way round."""
        nodes, nearest = self.nearest()
        both = np.isin(nodes * self.size + nearest, nearest * self.size + nodes)
        return nodes[both], nearest[both]

    def mutual(self) -> list[Rows]:
        """The groups of nodes that are each other's nearest."""
        return linked(*self.links())

    def join(self, groups: Sequence[Rows]) -> Rows:
        """Aggregate each group to a new node; return the new nodes' rows."""
        new = np.arange(self.size, self.size + len(groups))
        for row, group in zip(new.tolist(), groups):
            self.aggregate(row, group)
        self.size += len(groups)
        self.alive = np.append(np.setdiff1d(self.alive, np.concatenate(groups)), new)
        return new


class Nodes(Protocol):
    """What `dendrogram` needs of the nodes that it joins."""

    size: int

    @property
    def alive(self) -> Sized: ...

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
    while len(nodes.alive) > 1:
        groups = sorted(nodes.mutual(), key=lambda group: min(rank[r] for r in group))
        nodes.join(groups)
        for group in groups:
            joins.append(group.tolist())
            clients.append(np.concatenate([clients[member] for member in group]))
            rank.append(rank[group[0]])
    return Dendrogram(joins, clients)


@one_thread()
def dmac(
    space: Space, config: DmacConfig, first: int = 0, neighbors: Nearness | None = None
) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward.

    Clusters get ids from `first` on, and above all clients': smaller ones are left for clients
    that may join. With the plain `Neighbors` the tree is the same as by default, and it takes
    longer.
    """
    from sofa_fl.topology.clustering.gaps import build_by_gaps  # it is made of what is here

    if config.increase is not None:
        return paper_dmac(space, config, first, neighbors)
    tree = build_by_gaps(space, max(first, 1 + max(space.clients)), neighbors)
    return without_chance(tree, space) if config.certain else tree


@one_thread()
def paper_dmac(
    space: Space, config: DmacConfig, first: int = 0, neighbors: Nearness | None = None
) -> Tree:
    """Algorithm 1 as the paper writes it, with γ = `config.increase`; ids as those of `dmac`.

    Join all pairs (n_u, n_v) with D(n_u, n_v) ≤ τ · γ, where τ = min D, until one node is left.
    Pairs that share a node are joined to one cluster, which stands at the weighted mean of its
    clients. Chosen: distances that only rounding tells apart are equal.
    """
    from sofa_fl.topology.clustering.fast import FastNeighbors  # it is made of what is here

    if (gamma := config.increase) is None:
        raise TopologyError(
            "the paper's DMAC needs the increasing factor gamma, got none: set dmac.increase"
        )
    nodes, num = (neighbors or FastNeighbors)(space), len(space.clients)
    first = max(first, 1 + max(space.clients))
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
