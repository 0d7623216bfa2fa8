"""Every node's distance to its nearest other, kept up to date as nodes are joined.

Agglomerative clustering only ever asks for the smallest distances. So one number per node is kept
instead of all pairs; and once a node's nearest is gone, that number is a bound from below, and the
node is measured anew only when the smallest distances have grown as far. Quadratic in time, linear
in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sofa_fl.topology.clustering.fast.distance_matrix import TRIFLE, Ruler
from sofa_fl.topology.geometry.node_positions import Floats
from sofa_fl.topology.geometry.space import Space

Rows = NDArray[np.intp]
BLOCK = 1 << 20  # distances measured at a time
DENSE = 1024  # nodes whose distances are all measured at once


class Nearest:
    """Nodes by row: the clients of a space first, then what they were joined to."""

    def __init__(self, space: Space) -> None:
        n, d = space.positions.shape
        room = 2 * n - 1  # every join leaves fewer nodes than before
        self._positions = np.zeros((room, d))
        self._positions[:n] = space.positions
        self._weight = np.zeros(room)
        self._weight[:n] = space.weights
        self._inertia = np.zeros(room)
        self._ruler = Ruler(space, self._positions, self._inertia)
        self.size = n  # rows in use, gone ones included
        self.num_alive = n
        # A node has a slot, which the next node takes over: what is measured lies close together.
        self._row = np.arange(n)
        self._slot = np.zeros(room, dtype=np.intp)
        self._slot[:n] = self._row
        self._sheet = self._ruler.sheet(self._row)
        self._distance = np.full(n, np.inf)  # of the slots; infinite for those that are free
        self._of = np.zeros(n, dtype=np.intp)  # the slot that the distance is to
        self._stale = np.zeros(n, dtype=bool)  # whose distance is but a bound from below
        self._measure(self._row)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Whether the row is a node that has not been joined to another."""
        alive = np.zeros(len(self._positions), dtype=bool)
        alive[self._row[self._row >= 0]] = True
        return alive

    @property
    def smallest(self) -> float:
        """The smallest distance of any two nodes."""
        while True:
            fresh = self._distance[~self._stale].min(initial=np.inf)
            doubtful = np.flatnonzero(self._stale & (self._distance < fresh))
            if not len(doubtful):
                return float(fresh)
            few = np.argsort(self._distance[doubtful], kind="stable")[:64]
            self._measure(doubtful[few])

    def within(self, reach: float) -> Rows:
        """The nodes that have another within `reach`, and those others.

        The others have it too, but for rounding: the same distance may come out otherwise in
        the last digit.
        """
        self._measure(np.flatnonzero(self._stale & (self._distance <= reach)))
        near = np.flatnonzero(self._distance <= reach)
        return np.sort(self._row[np.union1d(near, self._of[near])])

    def components(self, increase: float) -> list[Rows]:
        """Nodes linked directly or by way of others, by links of up to `increase` times the
        smallest distance; at least the nearest two are."""
        smallest = self.smallest
        # Both ends of every link are near to somebody; a trifle nearer is near too.
        close = self.within(smallest * increase * (1 + 10 * TRIFLE))
        if len(close) <= DENSE:
            distances = self._ruler.between(close, close)
            linked = distances <= distances.min() * increase
            label = connected_components(linked, directed=False)[1]
        else:
            label = self._labels(close, smallest * increase)
        order = np.argsort(label, kind="stable")
        cuts = np.flatnonzero(np.diff(label[order])) + 1
        return [close[part] for part in np.split(order, cuts) if len(part) > 1]

    def mutual(self) -> list[Rows]:
        """Nodes that are each other's nearest, or as near as the nearest; at least two are."""
        near = self._row >= 0
        self._measure(np.flatnonzero(self._stale & near))
        # The same distance may come out otherwise in the last digit.
        near &= self._distance <= self._distance[self._of] * (1 + TRIFLE)
        slots = np.flatnonzero(near)
        ends, n = (slots, self._of[slots]), len(self._row)
        links = coo_array((np.ones(len(slots), dtype=np.int8), ends), shape=(n, n))
        label = connected_components(links, directed=False)[1]
        close = np.unique(np.concatenate(ends))
        close = close[np.argsort(label[close], kind="stable")]
        cuts = np.flatnonzero(np.diff(label[close])) + 1
        return [np.sort(self._row[part]) for part in np.split(close, cuts)]

    def _labels(self, close: Rows, reach: float) -> NDArray[np.int32]:
        """The component of each node, by links within `reach`, a few rows at a time.

        What is in one component already is not looked at again, and the first rows come singly:
        so a component of all, with as many links as there are pairs, is soon known as one.
        """
        n, start, step = len(close), 0, 1
        label = np.arange(n, dtype=np.int32)
        sheet = self._ruler.sheet(close)
        limit = reach**self._ruler.power * (1 + TRIFLE)
        while start < n:
            rows = np.arange(start, min(n, start + step))
            rough, error = self._ruler.rough(close[rows], sheet)
            apart = label[rows][:, None] != label[None, :]
            at, to = np.nonzero((rough <= limit + error[:, None]) & apart)
            near = self._ruler.gaps(close[rows[at]], close[to]) <= reach
            ends = (label[rows[at[near]]], label[to[near]])
            links = coo_array((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(n, n))
            label = connected_components(links, directed=False)[1][label]
            start, step = start + step, min(2 * step, max(1, BLOCK // n))
        return label

    def join(self, groups: Sequence[Rows]) -> Rows:
        """Join each group to a new node; return the new nodes' rows."""
        new = np.arange(self.size, self.size + len(groups))
        self.size += len(groups)
        for row, group in zip(new, groups):
            weights, positions = self._weight[group], self._positions[group]
            self._weight[row] = weights.sum()
            self._positions[row] = np.average(positions, axis=0, weights=weights)
            spread = ((positions - self._positions[row]) ** 2).sum(axis=1) + self._inertia[group]
            self._inertia[row] = np.average(spread, weights=weights)
        gone = self._slot[np.concatenate(groups)]
        self.num_alive += len(groups) - len(gone)
        free = np.zeros(len(self._row), dtype=bool)
        free[gone] = True
        self._stale |= free[self._of]
        self._row[gone], self._distance[gone], self._stale[gone] = -1, np.inf, False
        self._ruler.clear(self._sheet, gone)
        slots = self._slot[[group[0] for group in groups]]
        self._row[slots], self._slot[new] = new, slots
        self._sheet[slots] = self._ruler.sheet(new)
        if 2 * self.num_alive < len(self._row):
            self._close_ranks()
        self._welcome(self._slot[new])
        return new

    def _close_ranks(self) -> None:
        """Leave out the free slots."""
        kept = np.flatnonzero(self._row >= 0)
        place = np.zeros(len(self._row), dtype=np.intp)
        place[kept] = np.arange(len(kept))
        self._row, self._distance, self._stale = (
            self._row[kept],
            self._distance[kept],
            self._stale[kept],
        )
        self._of = place[self._of[kept]]  # a nearest that is gone: the node is stale anyway
        self._slot[self._row] = np.arange(len(kept))
        self._sheet = self._sheet[kept]

    def _measure(self, slots: Rows) -> None:
        """Find the nearest of `slots` among all."""
        step = max(1, BLOCK // len(self._row))
        for start in range(0, len(slots), step):
            some = slots[start : start + step]
            rough, error = self._ruler.rough(self._row[some], self._sheet)
            rough[np.arange(len(some)), some] = np.inf
            self._take(some, rough, error)

    def _take(self, slots: Rows, rough: Floats, error: Floats) -> None:
        """Note the nearest of `slots`, given all distances but for a small error."""
        nearest = rough.argmin(axis=1)
        least = rough[np.arange(len(slots)), nearest]
        known = np.isfinite(least)
        distance = np.full(len(slots), np.inf)
        distance[known] = self._gaps(slots[known], nearest[known])
        # Where the error is no trifle, the nearest is one of all that may be it.
        unclear = (error > TRIFLE * least) & (distance > 0) & known
        for at in np.flatnonzero(unclear):
            maybe = np.flatnonzero(rough[at] <= least[at] * (1 + TRIFLE) + 2 * error[at])
            if len(maybe) > 1:
                apart = self._ruler.between(self._row[slots[at : at + 1]], self._row[maybe])[0]
                nearest[at], distance[at] = maybe[apart.argmin()], apart.min()
        self._distance[slots], self._of[slots], self._stale[slots] = distance, nearest, False

    def _welcome(self, new: Rows) -> None:
        """Find the nearest of new nodes, and whose nearest they are."""
        step = max(1, BLOCK // len(self._row))
        for start in range(0, len(new), step):
            some = new[start : start + step]
            rough, error = self._ruler.rough(self._row[some], self._sheet)
            rough[np.arange(len(some)), some] = np.inf
            self._take(some, rough, error)
            bound = (rough * (1 - TRIFLE) - error[:, None]).min(axis=0)
            maybe = np.flatnonzero(bound <= self._distance**self._ruler.power)
            maybe = maybe[(self._row[maybe] >= 0) & ~np.isin(maybe, some)]
            if len(maybe):
                apart = self._ruler.between(self._row[some], self._row[maybe])
                closest = apart.argmin(axis=0)
                value = apart[closest, np.arange(len(maybe))]
                nearer = value < self._distance[maybe]
                # What is nearer than the bound is the nearest: no stale ones are left of these.
                slots = maybe[nearer]
                self._distance[slots], self._of[slots] = value[nearer], some[closest[nearer]]
                self._stale[slots] = False

    def _gaps(self, a: Rows, b: Rows) -> Floats:
        return self._ruler.gaps(self._row[a], self._row[b])
