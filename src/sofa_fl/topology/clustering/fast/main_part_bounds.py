"""Bounds for clients without structure: one part is nearly all, and little lies apart from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sofa_fl.topology.clustering.fast.mean_distances import SURE, MeanDistances
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
