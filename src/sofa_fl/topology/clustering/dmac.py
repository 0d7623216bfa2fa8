"""DMAC, dynamic multi-branch agglomerative clustering: the first tree.

The paper's rule (Algorithm 1) joins all pairs below a threshold, step by step. Ours needs no
threshold: it joins the nearest nodes, and a join becomes a cluster if there is a gap above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from sofa_fl.errors import TopologyError
from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.fast import fast_neighbors
from sofa_fl.topology.clustering.separation import (
    Nearness,
    PairDistances,
    Separation,
    plain_neighbors,
    stands_out,
    without_chance,
)
from sofa_fl.topology.geometry.space import TIE, Neighbors, Space, linked
from sofa_fl.topology.tree import NodeId, Rows, Tree

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

NO_PAIRS = PairDistances(0, 0.0, 0.0)
FEW = 300  # clients: up to this number, plain neighbors are as fast


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit compiled libraries to one thread.

    Clustering works on blocks that take a millisecond. Two threads that wait for each other after
    each block are hardly faster on an idle machine, and many times slower on a busy one.
    """
    with _controller().limit(limits=1):
        yield


@cache  # finding all libraries takes milliseconds
def _controller() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController  # a machine of a deployment may not have it

    return ThreadpoolController()


def quickest(space: Space) -> tuple[Neighbors, Separation]:
    """Plain neighbors for few clients, fast ones for many: the same tree in less time."""
    return (plain_neighbors if len(space.clients) <= FEW else fast_neighbors)(space)


@one_thread()
def dmac(
    space: Space, config: DmacConfig, first: int = 0, neighbors: Nearness | None = None
) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward.

    The ids of clusters are at least `first`, and above those of all clients: smaller ids are left
    for clients that may join. With `plain_neighbors`, the tree is the same and takes longer.
    """
    if config.increase is not None:
        return paper_dmac(space, config, first, neighbors)
    nodes, separation = (neighbors or quickest)(space)
    tree = build_by_gaps(space, max(first, 1 + max(space.clients)), nodes, separation)
    return without_chance(tree, separation) if config.certain else tree


@one_thread()
def paper_dmac(
    space: Space, config: DmacConfig, first: int = 0, neighbors: Nearness | None = None
) -> Tree:
    """Algorithm 1 as the paper writes it, with γ = `config.increase`; ids as in `dmac`.

    Join all pairs (n_u, n_v) with D(n_u, n_v) ≤ τ · γ, where τ = min D, until one node is left.
    Pairs that share a node are joined to one cluster, whose position is the weighted mean of its
    clients. Chosen: distances that differ only by rounding are equal.
    """
    if (gamma := config.increase) is None:
        raise TopologyError(
            "the paper's DMAC needs the increasing factor gamma, got none: set dmac.increase"
        )
    nodes, num = (neighbors or quickest)(space)[0], len(space.clients)
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


def dendrogram(nodes: Neighbors) -> list[list[int]]:
    """Join the nearest nodes until one is left, ties in one join; return the rows of each join.

    With average linkage, a join of two nodes that are each other's nearest is no nearer to any
    other node than they were. So all such pairs can be joined at once: the result is the same as
    with one join at a time.
    """
    joins = list[list[int]]()
    rank = list(range(nodes.size))  # a new node takes the rank of its first member
    while len(nodes.alive) > 1:
        groups = sorted(nodes.mutual(), key=lambda group: min(rank[r] for r in group))
        nodes.join(groups)
        joins += [group.tolist() for group in groups]
        rank += [rank[group[0]] for group in groups]
    return joins


@dataclass(slots=True)
class Branch:
    """A branch of the dendrogram: a client, or a join that may become a cluster.

    Attributes:
        clients: The rows of the clients.
        id: Of the client or the cluster; None for a join that is not a cluster, or not yet.
        pairs: The distances of clients of different parts; none for a client.
        outer: The distances to the clients that it is joined with next.
        parts: The children that a cluster has; none for a client.
    """

    clients: Rows
    id: NodeId | None = None
    pairs: PairDistances = NO_PAIRS
    outer: PairDistances = NO_PAIRS
    parts: list[Branch] = field(default_factory=list)

    def add(self, part: Branch) -> None:
        """Add a client or a cluster; of a join that is neither, its parts."""
        if part.id is None:
            self.pairs += part.pairs
            self.parts += part.parts
        else:
            self.parts.append(part)

    def tightness(self, factor: float) -> float:
        """The mean distance within the join or, if it does not stand out, within its clusters."""
        if stands_out(self.pairs, self.outer, factor):
            return self.pairs.mean
        size, clusters = len(self.clients), [part for part in self.parts if part.parts]
        alone = size - sum(len(cluster.clients) for cluster in clusters)
        within = sum(len(cluster.clients) * cluster.pairs.mean for cluster in clusters)
        return (within + alone * self.pairs.mean) / size


def build_by_gaps(space: Space, first: int, nodes: Neighbors, separation: Separation) -> Tree:
    """Build the tree of those joins above which there is a gap; ids of clusters from `first` on.

    Nodes are joined two by two, the nearest first. A join becomes a cluster if its clients are
    farther from those it is joined to next than its own parts are from each other, clearly and not
    by chance (`stands_out`); else its parts become parts of that next join. So where distances grow
    without a gap, all joins become one wide cluster, and clients that differ only by noise get a
    flat tree. Each gap is measured locally, not by one threshold for all distances: groups need not
    be equally tight.
    """
    parent: dict[NodeId, NodeId] = {}
    ids = map(NodeId, count(first))

    def make_cluster(join: Branch) -> NodeId:
        join.id = next(ids)
        parent.update((part.id, join.id) for part in join.parts if part.id is not None)
        return join.id

    branches = [Branch(np.array([row]), client) for row, client in enumerate(space.clients)]
    for members in dendrogram(nodes):
        parts = [branches[member] for member in members]
        pairs, outer = outer_pairs(separation, [part.clients for part in parts])
        for part, part_outer in zip(parts, outer):
            part.outer = part_outer
        join = Branch(np.concatenate([part.clients for part in parts]), pairs=pairs)
        for part in parts:
            others = [other for other in parts if other is not part]
            if part.parts and has_gap(part, others, separation):
                make_cluster(part)
            join.add(part)
        branches.append(join)
    root = branches[-1]
    top = make_cluster(root) if root.id is None else root.id
    return Tree({top: None, **parent}, space.clients, next(ids))


def has_gap(join: Branch, others: Sequence[Branch], separation: Separation) -> bool:
    """Whether a join stands out from the branches that it is joined with next.

    A single client may only be noisier than the rest, so it must be farther away. Where others are
    joins, too, the gap counts from halfway between the distances within the join and within them.
    """
    joins = [other for other in others if other.parts]
    alone = sum(len(other.clients) for other in others) == 1
    least = 0.0
    if joins:
        within = sum(len(each.clients) * each.tightness(separation.factor) for each in joins)
        mean = within / sum(len(each.clients) for each in joins)
        least = (join.pairs.mean + mean) / 2
    factor = separation.clearly if alone else separation.factor
    return stands_out(join.pairs, join.outer, factor, least)


def outer_pairs(
    separation: Separation, groups: Sequence[Rows]
) -> tuple[PairDistances, list[PairDistances]]:
    """The pairs of clients of different groups: all, and those of each group."""
    if len(groups) == 2:
        pairs = separation.between(*groups)
        return pairs, [pairs, pairs]
    rest = [np.concatenate([*groups[:at], *groups[at + 1 :]]) for at in range(len(groups))]
    return separation.within(groups), [separation.between(*each) for each in zip(groups, rest)]
