"""Into how many parts a cluster may be split: what no partition can do, k-means need not try.

Nothing here depends on k-means. Of all partitions of the children in which at most one part is a
child alone, each bound shows that in none the parts stand out (`PartSeparation.stand_out`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sofa_fl.topology.clustering.fast.mean_distances import SURE, MeanDistances
from sofa_fl.topology.clustering.separation import Pairs, stands_out
from sofa_fl.topology.geometry.space import Floats
from sofa_fl.topology.tree.tree_arrays import Rows

LARGEST = 2048  # of a matrix that is decomposed
GRID = 1.2 ** np.arange(24)  # times the average: how much there may be along one line


def without_main_part(means: MeanDistances, numbers: Sequence[int]) -> list[int]:
    """Those numbers of parts that are not ruled out by how evenly the clients lie around.

    Let L bound what the clients scatter along any line. Two parts a and b whose centres are apart
    by a square of g scatter by g |a| |b| / (|a| + |b|), so one of them has at most 2 L / g clients.
    Parts that stand out have such a g, by how far the clients of the loosest are from each other.
    So all but one are small, and that main one is so much of all that its centre and its tightness
    are nearly those of all. Now a small part stands out only if its clients lie far outside,
    farther on average than any client does. All of this is worked out with the worst case for each
    number of parts.
    """
    if means.slope != 1 or not numbers:
        return list(numbers)
    cloud = _Cloud(means)
    most = {k: cloud.most(k) for k in numbers}
    limits = sorted({limit for limit in most.values() if limit > 0})
    proven = next((limit for limit in limits if cloud.bounded(limit)), np.inf)
    return [k for k in numbers if most[k] < proven]


class _Cloud:
    """The nodes around the centre of all their clients."""

    def __init__(self, means: MeanDistances) -> None:
        self._means, num = means, means.num
        self._n = int(num.sum())
        away = means.positions - num @ means.positions / self._n
        squares = np.einsum("ij,ij->i", away, away)
        self._rows = away * np.sqrt(num)[:, None]
        self._average = float(num @ squares) / min(away.shape)  # scatter along a line
        far = squares + means.sums_within / num**2
        order = np.argsort(-far, kind="stable")
        mass, sums = np.cumsum(num[order]), np.cumsum((num * far)[order])
        self._scatter, self._within = float(sums[-1]), float(means.sums_within.sum())
        # Of so many clients, at most, the squared distances to the centre, summed up.
        self._top = np.interp(np.arange(self._n), np.append(0, mass), np.append(0, sums))
        multi, self._clearly = means.factors
        self._factor = multi if means.of_clients else self._clearly

    def most(self, k: int) -> float:
        """The largest bound of the scatter along a line that rules out `k` parts; or zero."""
        if self._average <= 0 or not self._rules_out(k, self._average):
            return 0.0
        low, high = 0, len(GRID)  # by halves: what a bound rules out, a smaller one does
        while high - low > 1:
            middle = (low + high) // 2
            if self._rules_out(k, float(self._average * GRID[middle])):
                low = middle
            else:
                high = middle
        return float(self._average * GRID[low])

    def _outside(self, k: int, limit: float) -> Rows:
        """How many clients may not be of the main part; none if there need not be such a part."""
        n, within = self._n, self._within
        size = np.arange(int(self._means.num.max()), (n - 1) // k + 1)  # of a small part, at most
        if not len(size):
            return size
        # What is left to those that are not small, each client's share of it at least.
        t = np.arange((k - 1) * int(size[-1]) + 1)
        share = np.minimum.accumulate((self._scatter - self._top[t] - (k - 1) * limit) / (n - t))
        small = (k - 1) * size
        share = share[small] - within / (size * (n - small))
        apart = 2 * (self._factor - 1) * share - 2 * within / size**2 - self._means.slack
        enough = np.flatnonzero((share > 0) & (size * apart / 2 > limit * (1 + SURE)))
        return np.arange(1, 1 + small[enough[0]] if len(enough) else 1)

    def _rules_out(self, k: int, limit: float) -> bool:
        """Whether there is a main part, and too few lie far enough out to be another."""
        n, within = self._n, self._within
        t = self._outside(k, limit)
        main = n - t
        inner = 2 * (self._scatter - self._top[t] - limit * t / n) / main - 2 * within / main**2
        outside = self._top[t] + (t + 2 * main) * limit * t / (n * main)
        factor = np.where(t == 1, self._clearly, self._factor)  # a client alone
        needed = t * ((factor - 0.5) * inner - within / main**2 - self._means.slack)
        return len(t) > 0 and bool((outside < needed * (1 - SURE)).all())

    def bounded(self, limit: float) -> bool:
        """Whether the scatter along no line is above `limit`.

        In single precision, with more room than its rounding needs: a matrix of this kind has a
        Cholesky factor if and only if that is so.
        """
        rows = (self._rows / np.sqrt(self._scatter)).astype(np.float32)
        if min(rows.shape) > LARGEST:
            return False
        small = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
        room = 0.9 * limit / self._scatter - max(rows.shape) * 2.0**-23
        try:
            np.linalg.cholesky(np.float32(room) * np.eye(len(small), dtype=np.float32) - small)
        except np.linalg.LinAlgError:
            return False
        return True


TINY = 7  # children of which all sets are looked at
FEW = 256  # children of which all pairs are

Bools = NDArray[np.bool_]


def possible_numbers(means: MeanDistances, numbers: Sequence[int]) -> list[int]:
    """Those of `numbers` into which the nodes may be parted, as far as means tell."""
    m = len(means.num)
    if not numbers:
        return []
    if m <= TINY:
        return _by_sets(means, numbers)
    if m <= FEW:
        numbers = _by_rows(means, numbers)
    return without_main_part(means, numbers) if numbers else []


def _by_rows(means: MeanDistances, numbers: Sequence[int]) -> list[int]:
    """By how many nodes a part may have.

    The clients of a part are on average farther from all others than from each other. So there is
    a node in it of which this is true alone, and truer still of its nearest and its farthest.
    """
    m, num = len(means.num), means.num
    apart = means.between()
    np.fill_diagonal(apart, np.inf)
    if means.of_clients:
        near, mass = np.sort(apart, axis=1)[:, :-1], np.arange(m, dtype=np.float64)[None, :]
        sums = _cumulated(near)
    else:
        order = np.argsort(apart, axis=1)[:, :-1]
        near, sizes = np.take_along_axis(apart, order, axis=1), num[order]
        mass, sums = _cumulated(sizes), _cumulated(sizes * near)
    nodes = np.arange(2, m)  # that the part may have; the clients of all but one of them are
    ascending = np.cumsum(np.sort(num))
    low, high = ascending[nodes - 2], ascending[-1] - ascending[m - nodes]  # at least and at most
    if means.of_clients:
        inner, outer = sums[:, nodes - 1], sums[:, -1:] - sums[:, nodes - 1]
    else:
        inner, outer = (
            np.stack([np.interp(at, x, y) for x, y in zip(mass, sums)]) for at in (low, high)
        )
        outer = sums[:, -1:] - outer
    inner = inner / (num[:, None] + low) * (nodes / (nodes - 1))
    left = mass[:, -1:] - high
    outer = np.where(left > 0.5, outer / np.where(left > 0.5, left, 1), near[:, -1:])
    multi, clearly = means.factors
    inner *= np.where((nodes < m - 1) & means.of_clients, multi, clearly) * (1 - SURE)
    may = np.asarray((outer >= inner - means.slack).any(axis=0))
    if means.of_clients and may.any():
        # Not only of one node: of as many as there are, and of the others seen from their side.
        away = (sums[:, -1:] - sums[:, m - 1 - nodes]) / nodes
        may &= _mean_of_largest(outer - inner, nodes) >= -means.slack
        farthest = np.minimum(_mean_of_largest(outer, nodes), _mean_of_largest(away, m - nodes))
        may &= farthest + _mean_of_largest(-inner, nodes) >= -means.slack
    if not may.any():
        return []
    return [k for k in numbers if _add_up(np.concatenate([[False] * 2, may, [False]]), k)]


def _cumulated(values: Floats) -> Floats:
    """Of each row, from zero on."""
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


def _mean_of_largest(values: Floats, counts: Rows) -> Floats:
    """Of each column, so many."""
    sums = np.cumsum(-np.sort(-values, axis=0), axis=0)
    return np.asarray(sums[counts - 1, np.arange(len(counts))] / counts)


def _add_up(allowed: Bools, k: int) -> bool:
    """Whether `k` allowed sizes, of which one may be 1, add up to the largest."""
    m = len(allowed) - 1
    sizes = np.flatnonzero(allowed)
    sums = np.zeros(m + 1, dtype=bool)
    sums[[0]] = True
    for step in range(k):
        before, sums = sums, np.zeros(m + 1, dtype=bool)
        for size in sizes:
            sums[size:] |= before[: m + 1 - size]
        if step == k - 2 and sums[m - 1]:
            return True
    return bool(sums[m])


@cache
def _sets(m: int) -> tuple[Floats, Floats]:
    """All two disjoint sets of `m`, the first of several, the second of one or more."""
    found = np.array(list(product((0, 1, 2), repeat=m)))
    a, b = found == 1, found == 2
    first = (b.sum(axis=1) == 1) | (a.argmax(axis=1) < b.argmax(axis=1))  # of several each: once
    chosen = (a.sum(axis=1) > 1) & b.any(axis=1) & first
    return a[chosen].astype(np.float64), b[chosen].astype(np.float64)


def _by_sets(means: MeanDistances, numbers: Sequence[int]) -> list[int]:
    """By looking at every two sets of few nodes: any two of the parts are such."""
    apart = means.between()
    np.fill_diagonal(apart, 0)
    pairs = np.outer(means.num, means.num)
    np.fill_diagonal(pairs, 0)
    a, b = _sets(len(means.num))
    values = np.stack([pairs, pairs * apart, pairs * apart**2])
    left, right = a @ values, b @ values
    first, second = (left * a).sum(axis=2) / 2, (right * b).sum(axis=2) / 2
    across = (left * b).sum(axis=2)
    alone = b.sum(axis=1) == 1
    second[:, alone] = [[1], [0], [0]]  # not to divide by zero; nothing depends on it
    halfway = (first[1] / first[0] + second[1] / second[0]) / 2
    single = b @ means.num == 1
    multi, clearly = means.factors
    factor = np.where(single | (not means.of_clients), clearly, multi)
    pairs_a, pairs_b, outer = (_optimistic(values) for values in (first, second, across))
    outer = Pairs(outer.num, outer.mean * (1 + 2 * SURE) + means.slack, outer.scatter)
    lowered = factor * (1 - SURE)
    good = stands_out(pairs_a, outer, lowered, np.where(alone, 0, halfway * (1 - SURE)))
    good &= alone | stands_out(pairs_b, outer, lowered, halfway * (1 - SURE))
    full = (a + b).all(axis=1)
    some = {2: bool(good[full].any()), 3: bool(good[~full].any())}
    return [k for k in numbers if some[min(k, 3)]]


def _optimistic(values: Floats) -> Pairs:
    """Pairs from their numbers, sums and sums of squares of distances.

    Of nodes that are clusters only means are known, so their scatter is at least this.
    """
    num, total, squares = values
    scatter = np.maximum(squares - total**2 / num, 0.0)
    return Pairs(num, total / num * (1 - SURE), scatter * (1 - SURE))
