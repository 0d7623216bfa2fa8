"""What is more than noise: a group of clients that stands out, and directions that do.

The separation test compares the distances within a group to those between the group and others.
Distances are to the power in which noise adds up (squares, for the euclidean metric): that of two
clients is what tells them apart, plus the noise of each. Every client counts once, whatever its
weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import combinations
from operator import add

import numpy as np
from scipy.special import stdtrit

from sofa_fl.topology.geometry.space import Floats, Neighbors, Space
from sofa_fl.topology.tree import NodeId, Rows, Tree
from sofa_fl.topology.tree.edits import MutableTree

FACTOR = 1.06  # distances to others are at least this many times those within the group
CLEARLY = 1.5  # the same against a single client, which may only be noisier than the rest
DEVIATIONS = 1.5  # and more by this many standard deviations of the distances
CHANCE = 0.002  # and by more than would happen this often if there were no difference
FAMILY = 0.05  # the same, of all groups of this size that could have been picked
BLOCK = 1 << 20  # distances measured at a time

FEW_DIRECTIONS = 8  # of fewer none can be told to be noise
RARELY = 2.02  # what Tracy and Widom's largest variance exceeds with a probability of 1%
VANISHING = 1e-9  # variances below this fraction of the largest are none
TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Pairs:
    """Distances of pairs of clients: how many, their mean, their squared deviations from it."""

    num: float
    mean: float
    scatter: float

    def __add__(self, other: Pairs) -> Pairs:
        num, difference = self.num + other.num, other.mean - self.mean
        mean = self.mean + difference * other.num / num
        between = difference**2 * self.num * other.num / num
        return Pairs(num, mean, self.scatter + other.scatter + between)


def stands_out(inner: Pairs, outer: Pairs, factor: float, least: float = 0.0) -> bool:
    """Whether the outer pairs are farther apart than the inner ones, clearly and not by chance.

    Clearly: by `factor`, and by 1.5 standard deviations of the distances, so that few overlap.
    Not by chance: Student's t, which asks for more where there are few pairs.
    Inner pairs nearer than `least` count as that far.
    """
    base = max(inner.mean, least)
    gap, degrees = outer.mean - base, inner.num + outer.num - 2
    deviation = ((inner.scatter + outer.scatter) / degrees) ** 0.5
    t = student(degrees) * (1 / inner.num + 1 / outer.num) ** 0.5
    return bool(outer.mean >= base * factor and gap > deviation * max(DEVIATIONS, t))


def picked(k: int, terms: int, among: int) -> float:
    """By how many deviations the mean of `terms` may differ for the most extreme k `among` equals.

    They are one group of (among over k) that could have been picked: a union bound.
    """
    ways = math.log(math.comb(among, k))
    return math.sqrt(2 * (ways - math.log(FAMILY)) / terms)


@cache
def student(degrees: float) -> float:
    """What Student's t exceeds with a probability of `CHANCE`."""
    return float(stdtrit(degrees, 1 - CHANCE))


def power_of(space: Space) -> int:
    """The power of distances in which noise adds up."""
    return 2 if space.metric == "euclidean" else 1


class Separation:
    """The separation test for clients of a space, by row."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.factor, self.clearly = (f ** power_of(space) for f in (FACTOR, CLEARLY))

    def between(self, a: Rows, b: Rows) -> Pairs:
        """The pairs of one client of `a` and one of `b`."""
        return reduce(add, (_pairs(self._distances(block, b)) for block in blocks(a, len(b))))

    def are_outliers(self, others: Rows, group: Rows, among: int) -> bool:
        """Whether `others` are outside of a group, but no farther than its outermost might be."""
        every, m = blocks(group, len(group)), len(others)
        sums = np.concatenate([self._distances(block, group).sum(axis=1) for block in every])
        means = sums / (len(group) - 1)
        gap = self.between(group, others).mean - means.mean()
        return bool(gap <= means.std(ddof=1) * picked(m, m, among))

    def within(self, parts: Sequence[Rows]) -> Pairs | None:
        """The pairs of clients of different parts, if there are any."""
        if len(parts) < 2:
            return None
        rows = np.concatenate(parts)
        part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        start, pairs = 0, list[Pairs]()
        for block in blocks(rows, len(rows)):
            later = part_of[start:] > part_of[start : start + len(block), None]
            if later.any():
                pairs.append(_pairs(self._distances(block, rows[start:])[later]))
            start += len(block)
        return reduce(add, pairs)

    def noise(self, groups: Sequence[Rows]) -> float:
        """How much the distances vary between clients of one group, and of the same two groups.

        The standard deviation of all such pairs. Those within small groups alone are too few.
        """
        pairs = [self.between(a, b) for a, b in combinations(groups, 2)]
        pairs += [self.within(list(group[:, None])) or Pairs(1, 0.0, 0.0) for group in groups]
        degrees = sum(each.num - 1 for each in pairs)
        return (sum(each.scatter for each in pairs) / degrees) ** 0.5 if degrees else 0.0

    def _distances(self, a: Rows, b: Rows) -> Floats:
        """To the power in which noise adds up."""
        x, y = self.space.positions[a], self.space.positions[b]
        return self.space.distances(x, y) ** power_of(self.space)


def plain_neighbors(space: Space) -> tuple[Neighbors, Separation]:
    """What DMAC measures by: the nodes that it joins, and the separation test."""
    return Neighbors(space), Separation(space)


def blocks(rows: Rows, width: int) -> Iterator[Rows]:
    """Rows in blocks: the distances of each to `width` others fit into memory."""
    step = max(1, BLOCK // width)
    return (rows[start : start + step] for start in range(0, len(rows), step))


def _pairs(distances: Floats) -> Pairs:
    mean = float(distances.mean())
    deviations = distances.ravel() - mean
    return Pairs(distances.size, mean, float(deviations @ deviations))


def without_chance(tree: Tree, separation: Separation) -> Tree:
    """Dissolve the clusters that noise alone may have made, the highest first.

    The tightest group among many clients that are alike is tight, and the outermost of them are
    far out. So a cluster must stand out by more than the most extreme of all groups of its size
    would, and so must those beside it. These are groups of its parent's clients: a parent that has
    stayed is none by chance, so how many clients there are elsewhere does not matter. What a
    dissolved cluster leaves is tested in its parent. Noise is measured on the clients that are
    children of the parent or of one of its clusters.
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
        assert inner is not None  # a cluster has two children
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
    """The space with the directions only in which clients differ by more than noise.

    The noise of a client spreads over all directions, while groups differ in few. Of two distances
    in many directions, noise decides which is larger; without it, groups are apart.
    If nothing stands out, all clients are at one place. With few directions, or by another metric
    than the euclidean, which knows no directions, the space is as it was.
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
    """How many of the variances along principal directions, the largest first, are not noise."""
    k = 0
    while k < len(variances) - 2 and variances[k] > most_by_noise(variances[k:]):
        k += 1
    return k


def most_by_noise(variances: Floats) -> float:
    """The largest variance that noise may have, if all but the largest are noise.

    The variances of noise fill a band from (1 - w)² to (1 + w)² of their mean (Marchenko and Pastur
    1967), so the smallest tells how wide it is. The largest of few varies around the upper edge
    (Johnstone 2001); w² is the ratio of the number of clients to that of directions.
    """
    mean, n = float(variances.mean()), float(len(variances) + 1)
    w = max(1 - math.sqrt(float(variances.min()) / mean), TINY)
    m = n / w**2
    spread = (math.sqrt(n) + math.sqrt(m)) * math.cbrt(1 / math.sqrt(n) + 1 / math.sqrt(m)) / m
    return mean * ((1 + w) ** 2 + RARELY * spread)
