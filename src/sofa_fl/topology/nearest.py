"""Every node's distance to its nearest other, kept up to date as nodes are joined.

Agglomerative clustering only ever asks for the smallest distances. Keeping one number per node
instead of all pairs, and measuring anew only what a join has changed, makes it quadratic in time
and linear in memory, but for pairs that are joined in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sofa_fl.topology.space import Floats, Space

Rows = NDArray[np.intp]
BLOCK = 1 << 24  # distances measured at a time


class Nearest:
    """Nodes by row: the clients of a space first, then what they were joined to."""

    def __init__(self, space: Space) -> None:
        n, d = space.places.shape
        room = 2 * n - 1  # every join leaves fewer nodes than before
        self._space = space
        self._places = np.zeros((room, d))
        self._places[:n] = space.places
        self._weight = np.zeros(room)
        self._weight[:n] = space.weights
        self._inertia = np.zeros(room)
        self._distance = np.full(room, np.inf)
        self._of = np.zeros(room, dtype=np.intp)  # whom the distance is to
        self.size = n  # rows in use, gone ones included
        self.alive = np.zeros(room, dtype=bool)
        self.alive[:n] = True
        self._measure(np.arange(n), np.arange(0))

    @property
    def smallest(self) -> float:
        return float(self._distance.min())

    def within(self, reach: float) -> Rows:
        """The nodes that have another within `reach`, and those others.

        The others have it too, but for rounding: the same distance may come out otherwise in
        the last digit.
        """
        near = np.flatnonzero(self._distance <= reach)
        return np.union1d(near, self._of[near])

    def between(self, a: Rows, b: Rows) -> Floats:
        """Distance of every node in `a` to every one in `b`; infinite to itself."""
        places, inertia = self._places, self._inertia
        apart = self._space.apart(places[a], places[b], inertia[a], inertia[b])
        apart[a[:, None] == b[None, :]] = np.inf
        return apart

    def join(self, groups: Sequence[Rows]) -> Rows:
        """Join each group to a new node; return the new nodes' rows."""
        new = np.arange(self.size, self.size + len(groups))
        self.size += len(groups)
        for row, group in zip(new, groups):
            weights, places = self._weight[group], self._places[group]
            self._weight[row] = weights.sum()
            self._places[row] = np.average(places, axis=0, weights=weights)
            spread = ((places - self._places[row]) ** 2).sum(axis=1) + self._inertia[group]
            self._inertia[row] = np.average(spread, weights=weights)
        gone = np.concatenate(groups)
        self.alive[gone], self._distance[gone] = False, np.inf
        left = np.flatnonzero(self.alive)
        self.alive[new] = True
        bereft = left[~self.alive[self._of[left]]]  # whose nearest is gone
        self._measure(np.concatenate([bereft, new]), np.setdiff1d(left, bereft))
        return new

    def _measure(self, rows: Rows, others: Rows) -> None:
        """Find the nearest of `rows` among all; `others` may have come nearer to one of them."""
        everyone = np.flatnonzero(self.alive)
        step = max(1, BLOCK // max(1, len(everyone)))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            apart = self.between(some, everyone)
            nearest = apart.argmin(axis=1)
            self._distance[some] = apart[np.arange(len(some)), nearest]
            self._of[some] = everyone[nearest]
            if len(others):
                back = apart[:, np.searchsorted(everyone, others)]
                closest = back.argmin(axis=0)
                value = back[closest, np.arange(len(others))]
                nearer = value < self._distance[others]
                self._distance[others[nearer]] = value[nearer]
                self._of[others[nearer]] = some[closest[nearer]]
