"""DMAC, dynamic multi-branch agglomerative clustering: the first tree.

The paper's (Algorithm 1) joins all pairs below a threshold, step by step. Ours has no threshold:
which joins of the nearest are clusters, the gaps above them say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from sofa_fl.errors import TopologyError
from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.fast import quickest
from sofa_fl.topology.clustering.separation import Pairs, Separation, stands_out, without_chance
from sofa_fl.topology.geometry.space import TIE, Neighbors, Space, linked
from sofa_fl.topology.tree import NodeId, Rows, Tree

Nearness = Callable[[Space], tuple[Neighbors, Separation]]
_controller = cache(ThreadpoolController)  # to look for all libraries takes milliseconds


@contextmanager
def one_thread() -> Iterator[None]:
    """Compiled libraries use one thread in here.

    Clustering works on blocks that take a millisecond. Two threads that wait for each other at
    every one of them are little faster on a free machine, and many times slower on a busy one.
    """
    with _controller().limit(limits=1):
        yield


@one_thread()
def dmac(
    space: Space, config: DmacConfig, first: int = 0, neighbors: Nearness | None = None
) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward.

    Clusters get ids from `first` on, and above all clients': smaller ones are left for clients
    that may join. `neighbors` may be `plain_neighbors`: the tree is the same, and takes longer.
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
    """Algorithm 1 as the paper writes it, with γ = `config.increase`; ids as those of `dmac`.

    Join all pairs (n_u, n_v) with D(n_u, n_v) ≤ τ · γ, where τ = min D, until one node is left.
    Pairs that share a node are joined to one cluster, which stands at the weighted mean of its
    clients. Chosen: distances that only rounding tells apart are equal.
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
    """Join the nearest until one is left, those at the same distance in one: the rows joined.

    With average linkage, joining two that are each other's nearest brings nobody nearer to
    anybody: so all such pairs can be joined at once, and the tree is that of one join at a time.
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
class Candidate:
    """A join that may become a cluster.

    Attributes:
        pairs: The pairs of clients of different parts.
        size: The number of clients.
        parts: The rows of the parts.
        clusters: Those of the parts that are clusters.
    """

    pairs: Pairs
    size: int
    parts: list[int] = field(default_factory=list)
    clusters: list[Candidate] = field(default_factory=list)

    def take_over(self, other: Candidate) -> None:
        """Take the parts of a join that is no cluster."""
        self.pairs += other.pairs
        self.parts += other.parts
        self.clusters += other.clusters

    def tightness(self, outer: Pairs, factor: float) -> float:
        """How far apart the clients are; if this is no cluster, as far as those of its parts."""
        if stands_out(self.pairs, outer, factor):
            return self.pairs.mean
        alone = self.size - sum(cluster.size for cluster in self.clusters)
        within = sum(cluster.size * cluster.pairs.mean for cluster in self.clusters)
        return (within + alone * self.pairs.mean) / self.size


def build_by_gaps(space: Space, first: int, nodes: Neighbors, separation: Separation) -> Tree:
    """Build the tree of those joins above which there is a gap; ids of clusters from `first` on.

    Nodes are joined two by two, the nearest first. A join stays a cluster if its clients are
    farther from those it is joined to next than its own parts are from each other, clearly and not
    by chance (`stands_out`); else its parts become parts of that next join. So where distances grow
    without a gap, all joins become one wide cluster, and clients that differ only by noise get a
    flat tree. Every gap is looked for where it is, not in all distances together: groups need not
    be equally tight.
    """
    clients = [np.array([row]) for row in range(len(space.clients))]  # of every row
    undecided: dict[int, Candidate] = {}
    clusters: dict[int, list[int]] = {}  # the parts of each
    for row, members in enumerate(dendrogram(nodes), len(clients)):
        pairs, outer = outer_pairs(separation, [clients[member] for member in members])
        clients.append(np.concatenate([clients[member] for member in members]))
        join = Candidate(pairs, len(clients[row]))
        joined = [undecided.pop(member, None) for member in members]  # None for clients
        tightness = {
            at: (child.size, child.tightness(outer[at], separation.factor))
            for at, child in enumerate(joined)
            if child is not None
        }
        for at, (member, child) in enumerate(zip(members, joined)):
            if child is None:
                join.parts.append(member)
                continue
            alone = join.size == child.size + 1  # the other may only be noisier than the rest
            factor = separation.clearly if alone else separation.factor
            others = [tightness[k] for k in tightness if k != at]
            if stands_out(child.pairs, outer[at], factor, halfway(child, others)):
                clusters[member] = child.parts
                join.parts.append(member)
                join.clusters.append(child)
            else:
                join.take_over(child)
        undecided[row] = join
    clusters |= {row: root.parts for row, root in undecided.items()}
    ids = dict(enumerate(space.clients)) | {r: NodeId(first + k) for k, r in enumerate(clusters)}
    parent: dict[NodeId, NodeId | None] = {ids[len(clients) - 1]: None}
    parent |= {ids[part]: ids[row] for row, parts in clusters.items() for part in parts}
    return Tree(parent, space.clients, first + len(clusters))


def halfway(join: Candidate, others: Sequence[tuple[int, float]]) -> float:
    """Halfway between the tightness of a join and that of the others, given with their sizes."""
    if not others:
        return 0.0
    mean = sum(size * tightness for size, tightness in others) / sum(size for size, _ in others)
    return (join.pairs.mean + mean) / 2


def outer_pairs(separation: Separation, groups: Sequence[Rows]) -> tuple[Pairs, list[Pairs]]:
    """The pairs of clients of different groups: all, and those of each group."""
    if len(groups) == 2:
        pairs = separation.between(*groups)
        return pairs, [pairs, pairs]
    outer = []
    for at, group in enumerate(groups):
        others = np.concatenate([*groups[:at], *groups[at + 1 :]])
        outer.append(separation.between(group, others))
    total = separation.within(groups)
    assert total is not None  # there are several groups
    return total, outer
