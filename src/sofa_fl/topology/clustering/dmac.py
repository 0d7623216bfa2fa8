"""Dynamic multi-branch agglomerative clustering (the paper's Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from annotated_types import Ge

from sofa_fl.topology.clustering.dendrogram import Dendrogram, dendrogram
from sofa_fl.topology.clustering.fast.nearest_neighbors import Nearest
from sofa_fl.topology.clustering.separation import CLEARLY, FACTOR, Pairs, Separation
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.geometry.threads import one_thread
from sofa_fl.topology.tree import NodeId, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class DmacConfig:
    """How wide the tree is.

    Attributes:
        increase: Pairs nearer than the smallest distance times this are joined in one step
            (gamma): 1 gives a binary tree but for ties, more gives a wider, flatter one. None
            takes for every cluster what the distances say: all is joined up to the next gap.
    """

    increase: Annotated[float, Ge(1)] | None = None


@one_thread()
def dmac(space: Space, config: DmacConfig, first: int = 0) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward.

    Ids below `first` are not for clusters: clients may come who have them.
    """
    first = max(first, 1 + max(space.clients))
    if config.increase is None:
        return _by_gaps(space, first)
    nodes, num = Nearest(space), len(space.clients)
    ids = [*space.clients, *(NodeId(first + k) for k in range(num - 1))]  # by row of `nodes`
    parent: dict[NodeId, NodeId | None] = {}
    while nodes.num_alive > 1:
        groups = nodes.components(config.increase)
        for row, group in zip(nodes.join(groups), groups):
            parent |= {ids[member]: ids[row] for member in group}
    return Tree({ids[nodes.size - 1]: None, **parent}, space.clients, first + nodes.size - num)


@dataclass(slots=True)
class _Join:
    """What may become a cluster.

    Attributes:
        pairs: Of clients of different parts.
        parts: Their rows.
        size: How many clients there are.
        within: Mean distances within those parts that are clusters, by clients, summed up.
        num_within: How many clients these have.
    """

    pairs: Pairs
    size: int
    parts: list[int] = field(default_factory=list)
    within: float = 0.0
    num_within: int = 0

    @property
    def level(self) -> float:
        """What is within the parts; of clients, what is between them."""
        alone = self.size - self.num_within
        return (self.within + alone * self.pairs.mean) / self.size

    def keep(self, row: int, cluster: _Join) -> None:
        """Take a cluster as one part."""
        self.parts.append(row)
        self.within += cluster.size * cluster.pairs.mean
        self.num_within += cluster.size

    def take_over(self, other: _Join) -> None:
        """Take the parts of what is no cluster."""
        self.parts += other.parts
        self.pairs += other.pairs
        self.within += other.within
        self.num_within += other.num_within


def _by_gaps(space: Space, first: int) -> Tree:
    """The tree of the joins above which there is a gap.

    Nodes are joined two by two, the nearest first. A join stays a cluster if its clients are
    farther from those it is joined to next than its own parts are from each other, clearly and not
    by chance (`Separation.stands_out`); else its parts become parts of that next join. So where
    distances grow without a gap, all joins become one wide cluster, and clients that do not differ
    but by noise get a flat tree. Every gap is looked for where it is, not in all distances
    together: groups need not be equally tight.
    """
    joins, num = dendrogram(space), len(space.clients)
    separation = Separation(space, space.positions[joins.order])
    open_joins: dict[int, _Join] = {}
    clusters: dict[int, list[int]] = {}  # the parts of each
    for row, members in enumerate(joins.joins, num):
        pairs, outer = _outer(joins, separation, row, members)
        here = _Join(pairs, int(joins.last[row] - joins.first[row]))
        found = [open_joins.pop(member, None) for member in members]
        tight = {
            k: (own.size, _tightness(own, apart, separation))
            for k, (own, apart) in enumerate(zip(found, outer))
            if own is not None
        }
        for at, (member, own, apart) in enumerate(zip(members, found, outer)):
            if own is None:
                here.parts.append(member)
                continue
            others = [level for k, level in tight.items() if k != at]
            factor = CLEARLY if here.size == own.size + 1 else FACTOR
            if separation.stands_out(own.pairs, apart, factor, _halfway(own, others)):
                clusters[member] = own.parts
                here.keep(member, own)
            else:
                here.take_over(own)
        open_joins[row] = here
    clusters |= {row: root.parts for row, root in open_joins.items()}
    ids = dict(enumerate(space.clients)) | {r: NodeId(first + k) for k, r in enumerate(clusters)}
    parent: dict[NodeId, NodeId | None] = {ids[num + len(joins.joins) - 1]: None}
    parent |= {ids[part]: ids[row] for row, parts in clusters.items() for part in parts}
    return Tree(parent, space.clients, first + len(clusters))


def _tightness(own: _Join, apart: Pairs, separation: Separation) -> float:
    """How far apart the clients of a join are; if it is no cluster, as those of its parts are."""
    return own.pairs.mean if separation.stands_out(own.pairs, apart) else own.level


def _halfway(own: _Join, others: list[tuple[int, float]]) -> float:
    """Between how tight a join and those beside it are, which are given by size and tightness."""
    if not others:
        return 0.0
    mean = sum(size * level for size, level in others) / sum(size for size, _ in others)
    return (own.pairs.mean + mean) / 2


def _outer(
    joins: Dendrogram, separation: Separation, row: int, members: list[int]
) -> tuple[Pairs, list[Pairs]]:
    """The pairs of clients of different members of a join: all, and those of each member."""
    if len(members) == 2:
        pairs = separation.between(*(joins.positions(member) for member in members))
        return pairs, [pairs, pairs]
    everyone = joins.positions(row)
    outer = []
    for member in members:
        low, high = joins.first[member] - everyone[0], joins.last[member] - everyone[0]
        others = np.delete(everyone, slice(low, high))
        outer.append(separation.between(joins.positions(member), others))
    total = outer[0]
    for pairs in outer[1:]:
        total += pairs
    return total.times(0.5), outer
