"""The separation test: does a group of clients, or a direction, stand out from noise?

It compares the distances within a group with those between the group and others. Distances are
raised to the power in which noise adds up (squares, for the euclidean metric): the distance of two
clients is then their true distance plus the noise of each. Every client counts once, whatever its
weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations

import numpy as np
from scipy.special import stdtrit

from sofa_fl.topology.geometry.space import Floats, Neighbors, Space
from sofa_fl.topology.tree import NodeId, Rows, Tree
from sofa_fl.topology.tree.edits import MutableTree

FACTOR = 1.06  # distances to others must be at least this many times those within the group
CLEARLY = 1.5  # the same if the others are a single client, which may only be noisier
DEVIATIONS = 1.5  # and larger by this many standard deviations of the distances
CHANCE = 0.002  # and by more than equal distances would differ with this probability
FAMILY = 0.05  # the same probability for all groups of this size that could have been picked

FEW_DIRECTIONS = 8  # too few to say which of them are noise
RARELY = 2.02  # Tracy and Widom's largest variance exceeds this with a probability of 1%
VANISHING = 1e-9  # variances below this fraction of the largest count as zero
TINY = 1e-6


@dataclass(frozen=True, slots=True)
class PairDistances:
    """Distances of pairs of clients: their number, mean, and sum of squared deviations from it."""

    num: float
    mean: float
    scatter: float

    def __add__(self, other: PairDistances) -> PairDistances:
        num, difference = self.num + other.num, other.mean - self.mean
        mean = self.mean + difference * other.num / num
        between = difference**2 * self.num * other.num / num
        return PairDistances(num, mean, self.scatter + other.scatter + between)


def stands_out(
    inner: PairDistances, outer: PairDistances, factor: float, least: float = 0.0
) -> bool:
    """Whether the outer pairs are farther apart than the inner ones, clearly and not by chance.

    Clearly: by `factor`, and by 1.5 standard deviations of the distances, so that few overlap.
    Not by chance: by Student's t, which requires more if there are few pairs.
    The mean of the inner pairs counts as `least` if it is smaller.
    """
    base = max(inner.mean, least)
    gap, degrees = outer.mean - base, inner.num + outer.num - 2
    deviation = ((inner.scatter + outer.scatter) / degrees) ** 0.5
    t = student(degrees) * (1 / inner.num + 1 / outer.num) ** 0.5
    return bool(outer.mean >= base * factor and gap > deviation * max(DEVIATIONS, t))


def picked(k: int, terms: int, among: int) -> float:
    """The deviations by which the most extreme k `among` equals may differ, as a mean of `terms`.

    They are one group of (among over k) that could have been picked: a union bound.
    """
    ways = math.log(math.comb(among, k))
    return math.sqrt(2 * (ways - math.log(FAMILY)) / terms)


@cache
def student(degrees: float) -> float:
    """The value that Student's t exceeds with a probability of `CHANCE`."""
    return float(stdtrit(degrees, 1 - CHANCE))


def power_of(space: Space) -> int:
    """The power of distances in which noise adds up."""
    return 2 if space.metric == "euclidean" else 1


class Separation:
    """The separation test for clients of a space, by row."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.factor, self.clearly = (f ** power_of(space) for f in (FACTOR, CLEARLY))

    def between(self, a: Rows, b: Rows) -> PairDistances:
        """The pairs of one client of `a` and one of `b`."""
        return pair_distances(self.distances(a, b))

    def are_outliers(self, others: Rows, group: Rows, among: int) -> bool:
        """Whether `others` are no farther from a group than its own outermost clients might be."""
        means, m = self.mean_distances(group), len(others)
        gap = self.between(group, others).mean - means.mean()
        return bool(gap <= means.std(ddof=1) * picked(m, m, among))

    def within(self, parts: Sequence[Rows]) -> PairDistances:
        """The pairs of clients of different parts, given at least two parts."""
        rows = np.concatenate(parts)
        part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return pair_distances(self.distances(rows, rows)[part_of[:, None] < part_of])

    def noise(self, groups: Sequence[Rows]) -> float:
        """The standard deviation of distances that noise alone makes different.

        These are the distances within each group and between each two groups, around their means.
        The distances within small groups alone would be too few.
        """
        pairs = [self.between(a, b) for a, b in combinations(groups, 2)]
        pairs += [self.within(list(group[:, None])) for group in groups if len(group) > 1]
        degrees = sum(each.num - 1 for each in pairs)
        return (sum(each.scatter for each in pairs) / degrees) ** 0.5 if degrees else 0.0

    def mean_distances(self, group: Rows) -> Floats:
        """The mean distance of each client of a group to the others."""
        return np.asarray(self.distances(group, group).sum(axis=1) / (len(group) - 1))

    def distances(self, a: Rows, b: Rows) -> Floats:
        """The distances, raised to the power in which noise adds up."""
        return self._all[a[:, None], b]

    @cached_property
    def _all(self) -> Floats:
        """The distances of all clients: joins ask for each of them several times."""
        positions = self.space.positions
        return self.space.distances(positions, positions) ** power_of(self.space)


Nearness = Callable[[Space], tuple[Neighbors, Separation]]


def plain_neighbors(space: Space) -> tuple[Neighbors, Separation]:
    """What DMAC works with: the nodes that it joins, and the separation test."""
    return Neighbors(space), Separation(space)


def pair_distances(distances: Floats) -> PairDistances:
    """The number, mean and squared deviations of distances."""
    mean = float(distances.mean())
    deviations = distances.ravel() - mean
    return PairDistances(distances.size, mean, float(deviations @ deviations))


def without_chance(tree: Tree, separation: Separation) -> Tree:
    """Dissolve the clusters that noise alone may have made, the highest first.

    Among many equal clients, some group is always tight, and some clients are always far out. So a
    cluster must stand out by more than the most extreme group of its size would by chance, and so
    must the clients beside it. Only groups of its parent's clients count: the parent has passed the
    test, so clients elsewhere do not matter. The children of a dissolved cluster are tested below
    its parent. Noise is measured on the clients that are children of the parent or of one of its
    clusters.
    """
    row_of, draft = separation.space.row_of, MutableTree(tree)

    def rows(node: NodeId) -> Rows:
        return np.array([row_of[n] for n in draft.walk(node) if n in tree.members])

    def clusters_of(node: NodeId) -> list[NodeId]:
        return [child for child in draft.children[node] if child not in tree.members]

    def noise_in(parent: NodeId) -> float:
        families = [draft.children[c] for c in (parent, *clusters_of(parent))]
        groups = [[row_of[n] for n in nodes if n in tree.members] for nodes in families]
        return separation.noise([np.array(group) for group in groups if group])

    def is_chance(cluster: NodeId, every: Rows, noise: float) -> bool:
        group, inner = rows(cluster), separation.within([rows(n) for n in draft.children[cluster]])
        others, k, among = np.setdiff1d(every, group), len(group), len(every)
        gap = separation.between(group, others).mean - inner.mean
        # The pairs of k clients share them, so k - 1 are independent.
        by_noise = noise * picked(k, k - 1, among)
        return gap <= by_noise or separation.are_outliers(others, group, among)

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


def without_noise(space: Space) -> Space:
    """The space reduced to the directions in which clients differ by more than noise.

    A client's noise spreads over all directions, while groups differ in few of them. In many
    directions, noise decides which of two distances is larger; without it, groups are separate.
    If no direction stands out, all clients get the same position. The space does not change if it
    has few directions, or a metric other than the euclidean one.
    """
    if space.metric != "euclidean":
        return space
    centred = space.positions - space.positions.mean(axis=0)
    axes, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    variances = lengths**2
    variances = variances[variances > VANISHING * variances.max(initial=0.0)]
    if len(variances) < FEW_DIRECTIONS:
        return space
    k = num_signals(variances)
    positions = axes[:, :k] * lengths[:k] if k else np.zeros((len(axes), 1))
    return replace(space, positions=positions)


def num_signals(variances: Floats) -> int:
    """The number of principal directions, given their variances in falling order, above noise."""
    k = 0
    while k < len(variances) - 2 and variances[k] > most_by_noise(variances[k:]):
        k += 1
    return k


def most_by_noise(variances: Floats) -> float:
    """The largest variance that noise may have, if all but the largest are noise.

    The variances of noise fill a band from (1 - w)² to (1 + w)² of their mean (Marchenko and Pastur
    1967), so the smallest one gives w. The largest of few varies around the upper edge (Johnstone
    2001). w² is the ratio of the number of clients to that of directions.
    """
    mean, n = float(variances.mean()), float(len(variances) + 1)
    w = max(1 - math.sqrt(float(variances.min()) / mean), TINY)
    m = n / w**2
    spread = (math.sqrt(n) + math.sqrt(m)) * math.cbrt(1 / math.sqrt(n) + 1 / math.sqrt(m)) / m
    return mean * ((1 + w) ** 2 + RARELY * spread)
