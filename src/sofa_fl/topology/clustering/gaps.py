"""DMAC without a threshold: which joins of the nearest are clusters, by the gaps above them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sofa_fl.topology.clustering.dense import DenseNodes, DenseSeparation, is_dense
from sofa_fl.topology.clustering.dmac import Dendrogram, Nearness, Nodes, dendrogram
from sofa_fl.topology.clustering.fast import FastNeighbors
from sofa_fl.topology.clustering.separation import Pairs, Separation, stands_out
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree


@dataclass(slots=True)
class _Join:
    """What may become a cluster.

    Attributes:
        pairs: The pairs of clients of different parts.
        size: The number of clients.
        parts: The rows of the parts.
        sum_within: The mean distances within those parts that are clusters, times their clients.
        num_within: The number of clients of these parts.
    """

    pairs: Pairs
    size: int
    parts: list[int] = field(default_factory=list)
    sum_within: float = 0.0
    num_within: int = 0

    def keep(self, row: int, cluster: _Join) -> None:
        """Take a cluster as one part."""
        self.parts.append(row)
        self.sum_within += cluster.size * float(cluster.pairs.mean)
        self.num_within += cluster.size

    def take_over(self, join: _Join) -> None:
        """Take the parts of a join that is no cluster."""
        self.parts += join.parts
        self.pairs += join.pairs
        self.sum_within += join.sum_within
        self.num_within += join.num_within

    def tightness(self, outer: Pairs, factor: float) -> float:
        """How far apart the clients are; if this is no cluster, as far as those of its parts."""
        if stands_out(self.pairs, outer, factor):
            return float(self.pairs.mean)
        alone = self.size - self.num_within
        return (self.sum_within + alone * float(self.pairs.mean)) / self.size


def build_by_gaps(space: Space, first: int, neighbors: Nearness | None = None) -> Tree:
    """Build the tree of those joins above which there is a gap; ids of clusters from `first` on.

    Nodes are joined two by two, the nearest first. A join stays a cluster if its clients are
    farther from those it is joined to next than its own parts are from each other, clearly and not
    by chance (`stands_out`); else its parts become parts of that next join. So where distances grow
    without a gap, all joins become one wide cluster, and clients that differ only by noise get a
    flat tree. Every gap is looked for where it is, not in all distances together: groups need not
    be equally tight.
    """
    fits = neighbors is None and is_dense(space)
    nodes: Nodes = DenseNodes(space) if fits else (neighbors or FastNeighbors)(space)
    separation = DenseSeparation(space) if fits else Separation(space)
    tree, num = dendrogram(nodes), len(space.clients)
    undecided: dict[int, _Join] = {}
    clusters: dict[int, list[int]] = {}  # the parts of each
    for row, members in enumerate(tree.joins, num):
        pairs, outer = _outer_pairs(tree, separation, members)
        join = _Join(pairs, len(tree.clients[row]))
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
            if stands_out(child.pairs, outer[at], factor, _halfway(child, others)):
                clusters[member] = child.parts
                join.keep(member, child)
            else:
                join.take_over(child)
        undecided[row] = join
    clusters |= {row: root.parts for row, root in undecided.items()}
    ids = dict(enumerate(space.clients)) | {r: NodeId(first + k) for k, r in enumerate(clusters)}
    parent: dict[NodeId, NodeId | None] = {ids[num + len(tree.joins) - 1]: None}
    parent |= {ids[part]: ids[row] for row, parts in clusters.items() for part in parts}
    return Tree(parent, space.clients, first + len(clusters))


def _halfway(join: _Join, others: Sequence[tuple[int, float]]) -> float:
    """Halfway between the tightness of a join and that of the others, given with their sizes."""
    if not others:
        return 0.0
    mean = sum(size * tightness for size, tightness in others) / sum(size for size, _ in others)
    return (float(join.pairs.mean) + mean) / 2


def _outer_pairs(
    tree: Dendrogram, separation: Separation, members: Sequence[int]
) -> tuple[Pairs, list[Pairs]]:
    """The pairs of clients of different members of a join: all, and those of each member."""
    clients = [tree.clients[member] for member in members]
    if len(members) == 2:
        pairs = separation.between(*clients)
        return pairs, [pairs, pairs]
    outer = []
    for at in range(len(members)):
        others = np.concatenate(clients[:at] + clients[at + 1 :])
        outer.append(separation.between(clients[at], others))
    total = separation.within(clients)
    assert total is not None  # there are several members
    return total, outer
