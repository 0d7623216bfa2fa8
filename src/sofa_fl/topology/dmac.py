"""DMAC, dynamic multi-branch agglomerative clustering: the tree of clients by their positions.

The paper's rule (Algorithm 1) joins all pairs below a threshold, step by step (`by_threshold`).
Ours needs no threshold (`by_gaps`): it takes the dendrogram of average linkage, and a join becomes
a cluster if there is a gap above it. Where distances grow without a gap, all joins become one wide
cluster; so clients that differ only by noise get a flat tree. Each gap is measured locally: groups
need not be equally tight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, count
from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform
from scipy.special import stdtrit

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.edits import MutableTree
from sofa_fl.topology.space import TIE, Floats, Space, joined
from sofa_fl.topology.tree import NodeId, Rows, Tree

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

FACTOR = 1.06**2  # squared distances to others must be this many times those within a group
CLEARLY = 1.5**2  # the same if the others are a single client, which may only be noisier
DEVIATIONS = 1.5  # and larger by this many standard deviations of the squares
CHANCE = 0.002  # and by more than equal ones would differ with this probability
FAMILY = 0.05  # the same probability for all groups of this size that could have been picked


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


@one_thread()
def dmac(space: Space, config: DmacConfig | None = None, first: int = 0) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward.

    The ids of clusters are at least `first`, and above those of all clients: smaller ids are left
    for clients that may join.
    """
    config = config or DmacConfig()
    first = max(first, 1 + max(space.clients))
    if config.increase is not None:
        return by_threshold(space, config.increase, first)
    tree = by_gaps(space, first)
    return without_chance(tree, space) if config.certain else tree


def by_threshold(space: Space, gamma: float, first: int) -> Tree:
    """Algorithm 1 as the paper writes it.

    Join all pairs (n_u, n_v) with D(n_u, n_v) ≤ τ · γ, where τ = min D, until one node is left.
    Pairs that share a node are joined to one cluster, whose position is the weighted mean of its
    clients. Chosen: distances that differ only by rounding are equal.
    """
    ids, weights, positions = list(space.clients), space.weights, space.positions
    variances, new = np.zeros(len(ids)), map(NodeId, count(first))
    distances = space.distances(positions, positions)
    parent: dict[NodeId, NodeId | None] = {}
    while len(ids) > 1:
        np.fill_diagonal(distances, np.inf)
        near = distances <= distances.min() * gamma * (1 + TIE)
        _, group_of = connected_components(csr_array(near), directed=False)
        groups = [np.flatnonzero(group_of == group) for group in dict.fromkeys(group_of)]
        groups = [group for group in groups if len(group) > 1]
        clusters = [next(new) for _ in groups]
        for cluster, group in zip(clusters, groups):
            parent |= {ids[member]: cluster for member in group}
        nodes = [joined(weights[group], positions[group], variances[group]) for group in groups]
        stay = np.flatnonzero([ids[row] not in parent for row in range(len(ids))])
        ids = [*(ids[row] for row in stay), *clusters]
        weights = np.append(weights[stay], [weight for weight, _, _ in nodes])
        positions = np.vstack([positions[stay], *(position for _, position, _ in nodes)])
        variances = np.append(variances[stay], [variance for _, _, variance in nodes])
        old, size = len(stay), len(ids)
        distances, kept = np.empty((size, size)), distances[np.ix_(stay, stay)]
        between = np.add.outer(variances[old:], variances)
        distances[:old, :old] = kept
        distances[old:] = space.distances(positions[old:], positions, between)
        distances[:, old:] = distances[old:].T
    return Tree({ids[0]: None, **parent}, space.clients, next(new))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Squared distances of pairs of clients: number, mean, and sum of squared deviations."""

    num: float = 0
    mean: float = 0.0
    scatter: float = 0.0

    @classmethod
    def of(cls, squares: Floats) -> Pairs:
        mean = float(squares.mean())
        deviations = squares.ravel() - mean
        return cls(squares.size, mean, float(deviations @ deviations))

    def __add__(self, other: Pairs) -> Pairs:
        num, difference = self.num + other.num, other.mean - self.mean
        mean = self.mean + difference * other.num / num
        between = difference**2 * self.num * other.num / num
        return Pairs(num, mean, self.scatter + other.scatter + between)


@dataclass(slots=True)
class Branch:
    """A branch of the dendrogram: a client, or a join that may become a cluster.

    Attributes:
        rows: The rows of its clients.
        id: Of the client or the cluster; None for a join that is not a cluster, or not yet.
        inner: The pairs of clients of different parts; none for a client.
        outer: The pairs with the clients that it is joined with next.
        parts: The children that a cluster has; none for a client.
    """

    rows: Rows
    id: NodeId | None = None
    inner: Pairs = Pairs()
    outer: Pairs = Pairs()
    parts: list[Branch] = field(default_factory=list)

    def add(self, part: Branch) -> None:
        """Add a client or a cluster; of a join that is neither, its parts."""
        if part.id is None:
            self.inner += part.inner
            self.parts += part.parts
        else:
            self.parts.append(part)

    @property
    def tightness(self) -> float:
        """The mean square within the join or, if it does not stand out, within its clusters."""
        if stands_out(self.inner, self.outer, FACTOR):
            return self.inner.mean
        size, clusters = len(self.rows), [part for part in self.parts if part.parts]
        alone = size - sum(len(cluster.rows) for cluster in clusters)
        within = sum(len(cluster.rows) * cluster.inner.mean for cluster in clusters)
        return (within + alone * self.inner.mean) / size


def by_gaps(space: Space, first: int) -> Tree:
    """The tree of those joins of the dendrogram above which there is a gap; ids from `first` on.

    A join becomes a cluster if its clients are farther from those it is joined to next than its own
    parts are from each other (`has_gap`); else its parts become parts of that next join.
    """
    if len(space.clients) == 1:
        return Tree({space.clients[0]: None}, space.clients, first)
    parent: dict[NodeId, NodeId | None] = {}
    squares, ids = space.squares, map(NodeId, count(first))

    def make_cluster(join: Branch) -> NodeId:
        join.id = next(ids)
        parent.update((part.id, join.id) for part in join.parts if part.id is not None)
        return join.id

    branches = [Branch(np.array([row]), client) for row, client in enumerate(space.clients)]
    for a, b in dendrogram(squares):
        parts = branches[a], branches[b]
        between = Pairs.of(squares[np.ix_(parts[0].rows, parts[1].rows)])
        parts[0].outer = parts[1].outer = between
        join = Branch(np.concatenate([part.rows for part in parts]), inner=between)
        for part, other in (parts, parts[::-1]):
            if part.parts and has_gap(part, other):
                make_cluster(part)
        for part in parts:
            join.add(part)
        branches.append(join)
    top = make_cluster(branches[-1])
    return Tree({top: None, **parent}, space.clients, next(ids))


def dendrogram(squares: Floats) -> list[tuple[int, int]]:
    """The rows of each join of average linkage, the nearest first; a join gets the next row."""
    condensed = squareform(squares, checks=False)
    return [(int(a), int(b)) for a, b in linkage(condensed, "average")[:, :2]]


def has_gap(join: Branch, other: Branch) -> bool:
    """Whether a join stands out from the branch that it is joined with next.

    A single client may only be noisier than the rest, so it must be farther away. Where the other
    is a join, too, the gap counts from halfway between the distances within the two.
    """
    if not other.parts:
        return stands_out(join.inner, join.outer, CLEARLY)
    return stands_out(join.inner, join.outer, FACTOR, (join.inner.mean + other.tightness) / 2)


def stands_out(inner: Pairs, outer: Pairs, factor: float, least: float = 0.0) -> bool:
    """Whether the outer pairs are farther apart than the inner ones, clearly and not by chance.

    Clearly: by `factor`, and by 1.5 standard deviations of the squares, so that few overlap.
    Not by chance: by Student's t, which requires more if there are few pairs.
    The mean of the inner pairs counts as `least` if it is smaller.
    """
    base = max(inner.mean, least)
    gap, degrees = outer.mean - base, inner.num + outer.num - 2
    deviation = ((inner.scatter + outer.scatter) / degrees) ** 0.5
    t = _student(degrees) * (1 / inner.num + 1 / outer.num) ** 0.5
    return bool(outer.mean >= base * factor and gap > deviation * max(DEVIATIONS, t))


@cache
def _student(degrees: float) -> float:
    """The value that Student's t exceeds with a probability of `CHANCE`."""
    return float(stdtrit(degrees, 1 - CHANCE))


def without_chance(tree: Tree, space: Space) -> Tree:
    """Dissolve the clusters that noise alone may have made, the highest first.

    Among many equal clients, some group is always tight, and some clients are always far out. So a
    cluster must stand out by more than the most extreme group of its size would by chance, and so
    must the clients beside it. Only groups of its parent's clients count: the parent has passed the
    test, so clients elsewhere do not matter. The children of a dissolved cluster are tested below
    its parent. Noise is measured on the clients that are children of the parent or of one of its
    clusters.
    """
    row_of, squares, draft = space.row_of, space.squares, MutableTree(tree)

    def rows(node: NodeId) -> Rows:
        return np.array([row_of[n] for n in draft.walk(node) if n in tree.members])

    def clusters_of(node: NodeId) -> list[NodeId]:
        return [child for child in draft.children[node] if child not in tree.members]

    def noise_in(parent: NodeId) -> float:
        families = [draft.children[c] for c in (parent, *clusters_of(parent))]
        groups = [[row_of[n] for n in nodes if n in tree.members] for nodes in families]
        return _noise(squares, [np.array(group) for group in groups if group])

    def is_chance(cluster: NodeId, every: Rows, noise: float) -> bool:
        group, parts = rows(cluster), [rows(child) for child in draft.children[cluster]]
        others, k, among = np.setdiff1d(every, group), len(group), len(every)
        gap = squares[np.ix_(group, others)].mean() - _within(squares, parts).mean
        # The pairs of k clients share them, so k - 1 are independent.
        if gap <= noise * most_extreme(k, k - 1, among):
            return True
        means = squares[np.ix_(group, group)].sum(axis=1) / (k - 1)
        apart, m = squares[np.ix_(group, others)].mean() - means.mean(), len(others)
        return bool(apart <= means.std(ddof=1) * most_extreme(m, m, among))

    for parent in tree.clusters:  # parents before children
        if parent not in draft.parent:
            continue
        every, doubtful = rows(parent), clusters_of(parent)
        while doubtful:
            noise = noise_in(parent)
            gone = [cluster for cluster in doubtful if is_chance(cluster, every, noise)]
            doubtful = [child for cluster in gone for child in clusters_of(cluster)]
            for cluster in gone:
                draft.reparent(dict.fromkeys(draft.children[cluster], parent), drop=[cluster])
    return draft.done()


def most_extreme(k: int, terms: int, among: int) -> float:
    """The deviations by which the most extreme k `among` equals may differ, as a mean of `terms`.

    They are one group of (among over k) that could have been picked: a union bound.
    """
    ways = math.log(math.comb(among, k))
    return math.sqrt(2 * (ways - math.log(FAMILY)) / terms)


def _noise(squares: Floats, groups: Sequence[Rows]) -> float:
    """The standard deviation of squares that noise alone makes different.

    These are the squares within each group and between each two groups, around their means. Those
    within small groups alone would be too few.
    """
    pairs = [Pairs.of(squares[np.ix_(a, b)]) for a, b in combinations(groups, 2)]
    pairs += [_within(squares, list(group[:, None])) for group in groups if len(group) > 1]
    degrees = sum(each.num - 1 for each in pairs)
    return (sum(each.scatter for each in pairs) / degrees) ** 0.5 if degrees else 0.0


def _within(squares: Floats, parts: Sequence[Rows]) -> Pairs:
    """The pairs of clients of different parts, given at least two parts."""
    rows = np.concatenate(parts)
    part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return Pairs.of(squares[np.ix_(rows, rows)][part_of[:, None] < part_of])
