"""The nodes that DMAC joins, with the distance of each to its nearest kept up to date.

Agglomerative clustering only needs the smallest distances. So each node keeps the distance to its
nearest neighbor, instead of all distances. Once that neighbor is joined to another node, the
distance is a lower bound, and the node is measured again only when the smallest distance has grown
to that bound. Quadratic in time, linear in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from sofa_fl.topology.clustering.fast.block_distances import EPS, blocks
from sofa_fl.topology.clustering.separation import power_of
from sofa_fl.topology.geometry.space import (
    ROUNDING,
    TIE,
    Floats,
    Neighbors,
    Space,
    linked,
    unit_rows,
)
from sofa_fl.topology.tree import Rows

ROUGH_ERROR = 1e-9  # the relative error of rough distances, besides the error that they state


class FastNeighbors(Neighbors):
    """As `Neighbors`. Every node has a slot, so that the nodes left stay together in memory.

    Attributes:
        _row: The row of each slot; -1 if the slot is free.
        _distance: The distance of each slot to its nearest; infinite if the slot is free.
        _nearest: The slot of the nearest.
        _stale: Whether the distance is only a lower bound.
        _tied: Whether others may be as near as the nearest.
    """

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        n = self.size
        self._rough = RoughDistances(space, self.positions, self.variances)
        self._row, self._slot = np.arange(n), np.arange(len(self.weights))
        self._columns = self._rough.columns(self._row)
        self._distance, self._nearest = np.full(n, np.inf), np.zeros(n, dtype=np.intp)
        self._stale, self._tied = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        self._measure(self._row)

    def within(self, gamma: float) -> Rows:
        reach = self._smallest() * gamma * (1 + 10 * TIE)
        self._measure(np.flatnonzero(self._stale & (self._distance <= reach)))
        near = np.flatnonzero(self._distance <= reach)
        return np.sort(self._row[np.union1d(near, self._nearest[near])])

    def _smallest(self) -> float:
        """The smallest distance of any two nodes."""
        while True:
            fresh = self._distance[~self._stale].min(initial=np.inf)
            doubtful = np.flatnonzero(self._stale & (self._distance < fresh))
            if not len(doubtful):
                return float(fresh)
            few = np.argsort(self._distance[doubtful], kind="stable")[:64]
            self._measure(doubtful[few])

    def mutual(self) -> list[Rows]:
        nodes, nearest = self._all_nearest()
        both = np.isin(nodes * self.size + nearest, nearest * self.size + nodes)
        return linked(nodes[both], nearest[both])

    def _all_nearest(self) -> tuple[Rows, Rows]:
        """Every node, and its nearest; several times, if several are as near."""
        self._measure(np.flatnonzero(self._stale))
        slots = np.flatnonzero((self._row >= 0) & ~self._tied)
        a, b = [self._row[slots]], [self._row[self._nearest[slots]]]
        equal = slots[self._distance[slots] == 0]
        tied = self._row[(self._row >= 0) & self._tied]
        for rows in blocks(tied, len(self._row)):
            distances = self.distances(rows, self.alive)
            least = distances.min(axis=1)
            at, to = np.nonzero((distances <= least[:, None] * (1 + TIE)) & (least > 0)[:, None])
            a, b = [*a, rows[at]], [*b, self.alive[to]]
            # Among many equal nodes, links to the first are enough to join them all.
            zero = np.flatnonzero(least == 0)
            first = self.alive[distances[zero].argmin(axis=1)]
            a, b = [*a, rows[zero], first], [*b, first, rows[zero]]
        a, b = [*a, self._row[self._nearest[equal]]], [*b, self._row[equal]]
        return np.concatenate(a), np.concatenate(b)

    def join(self, groups: Sequence[Rows]) -> Rows:
        new = super().join(groups)
        gone = self._slot[np.concatenate(groups)]
        free = np.zeros(len(self._row), dtype=bool)
        free[gone] = True
        self._stale |= free[self._nearest]
        self._row[gone], self._distance[gone] = -1, np.inf
        self._stale[gone] = self._tied[gone] = False
        self._rough.clear(self._columns, gone)
        slots = self._slot[[group[0] for group in groups]]
        self._row[slots], self._slot[new] = new, slots
        self._columns[slots] = self._rough.columns(new)
        if 2 * len(self.alive) < len(self._row):
            self._drop_free_slots()
        self._add(self._slot[new])
        return new

    def _drop_free_slots(self) -> None:
        kept = np.flatnonzero(self._row >= 0)
        new_slot = np.zeros(len(self._row), dtype=np.intp)
        new_slot[kept] = np.arange(len(kept))
        self._nearest = new_slot[self._nearest[kept]]  # if it is gone, the node is stale anyway
        self._row, self._distance = self._row[kept], self._distance[kept]
        self._stale, self._tied = self._stale[kept], self._tied[kept]
        self._slot[self._row] = np.arange(len(kept))
        self._columns = self._columns[kept]

    def _measure(self, slots: Rows) -> None:
        """Find the nearest of `slots` among all."""
        for block in blocks(slots, len(self._row)):
            self._measure_block(block)

    def _measure_block(self, slots: Rows) -> tuple[Floats, Floats]:
        """Store the nearest of `slots`; return their rough distances to all, and the error."""
        rough, error = self._rough.rough(self._row[slots], self._columns)
        every = np.arange(len(slots))
        rough[every, slots] = np.inf
        nearest = rough.argmin(axis=1)
        least = rough[every, nearest]
        known = np.isfinite(least)
        distance = np.full(len(slots), np.inf)
        distance[known] = self._paired(slots[known], nearest[known])
        limit = np.where(known, least * (1 + 4 * ROUGH_ERROR) + 2 * error, -np.inf)
        tied = np.count_nonzero(rough <= limit[:, None], axis=1) > 1
        # If the error is not negligible, measure all that may be the nearest exactly.
        for at in np.flatnonzero(tied & (error > ROUGH_ERROR * least) & (distance > 0)):
            maybe = np.flatnonzero(rough[at] <= limit[at])
            exact = self.distances(self._row[slots[at : at + 1]], self._row[maybe])[0]
            nearest[at], distance[at] = maybe[exact.argmin()], exact.min()
            tied[at] = np.count_nonzero(exact <= exact.min() * (1 + 2 * TIE)) > 1
        self._distance[slots], self._nearest[slots] = distance, nearest
        self._stale[slots], self._tied[slots] = False, tied
        return rough, error

    def _paired(self, a: Rows, b: Rows) -> Floats:
        x, y = self._row[a], self._row[b]
        variances = self.variances[x] + self.variances[y]
        return paired_distances(self._space, self.positions[x], self.positions[y], variances)

    def _add(self, new: Rows) -> None:
        """Find the nearest of new nodes, and the nodes whose nearest they are."""
        for slots in blocks(new, len(self._row)):
            rough, error = self._measure_block(slots)
            bound = (rough * (1 - 4 * ROUGH_ERROR) - error[:, None]).min(axis=0)
            maybe = np.flatnonzero(bound <= self._distance**self._rough.power)
            maybe = maybe[(self._row[maybe] >= 0) & ~np.isin(maybe, slots)]
            if not len(maybe):
                continue
            exact = self.distances(self._row[slots], self._row[maybe])
            closest, value = exact.argmin(axis=0), exact.min(axis=0)
            before = self._distance[maybe]
            clearly_nearer = value * (1 + 2 * TIE) < before
            several = np.count_nonzero(exact <= value * (1 + 2 * TIE), axis=0) > 1
            as_near = value <= before * (1 + 2 * TIE)
            self._tied[maybe] = np.where(clearly_nearer, several, self._tied[maybe] | as_near)
            # A node nearer than a lower bound is the nearest, so the distance is exact again.
            nearer = value < before
            changed = maybe[nearer]
            self._distance[changed], self._nearest[changed] = value[nearer], slots[closest[nearer]]
            self._stale[changed] = False


def paired_distances(space: Space, a: Floats, b: Floats, variances: Floats | float = 0.0) -> Floats:
    """As `Space.distances`, but of each position in `a` to the one in the same row of `b`."""
    if space.metric == "cosine":
        if space.linkage == "centroid":
            a, b = unit_rows(a), unit_rows(b)
        distances = np.clip(1 - np.einsum("ij,ij->i", a, b), 0, 2)
    elif space.metric == "manhattan":
        distances = np.abs(a - b).sum(axis=1)
    else:
        squares = np.einsum("ij,ij->i", a - b, a - b)
        if space.linkage == "average":
            squares = squares + variances
        distances = np.sqrt(squares)
    rounding = ROUNDING * (space.lengths(a) + space.lengths(b))
    return np.where(distances <= rounding, 0.0, distances)


class RoughDistances:
    """Distances of many nodes to many, by matrix products: fast, and exact except for rounding.

    Nodes are rows of `positions` and `variances`, which may change between calls.

    Attributes:
        power: Rough distances are raised to this power: squares for the euclidean metric.
    """

    def __init__(self, space: Space, positions: Floats, variances: Floats) -> None:
        self._space, self._positions, self._variances = space, positions, variances
        self._centre = space.positions.mean(axis=0)  # smaller numbers, smaller errors
        self.power = power_of(space)

    def columns(self, rows: Rows) -> Floats:
        """These nodes in the form in which `rough` needs them, one row each."""
        positions = self._positions[rows]
        if self._space.metric == "manhattan":
            return positions
        if self._space.metric == "euclidean":
            positions = positions - self._centre
            squares = self._squares(positions, rows)
            return np.column_stack([-2 * positions, np.ones(len(rows)), squares])
        if self._space.linkage == "centroid":
            positions = unit_rows(positions)
        return np.column_stack([-positions, np.ones(len(rows))])

    @staticmethod
    def clear(columns: Floats, slots: Rows) -> None:
        """Move some of the columns infinitely far away."""
        columns[slots] = 0
        columns[slots, -1] = np.inf

    def rough(self, rows: Rows, columns: Floats) -> tuple[Floats, Floats]:
        """The distances of nodes to those of the columns, raised to `power`, and their errors.

        A true distance differs by at most the error of its row plus `ROUGH_ERROR` of itself.
        """
        positions = self._positions[rows]
        if self._space.metric == "manhattan":
            return np.asarray(cdist(positions, columns, "cityblock")), np.zeros(len(rows))
        ones, terms = np.ones(len(rows)), positions.shape[1] + 2
        if self._space.metric == "euclidean":
            positions = positions - self._centre
            squares = self._squares(positions, rows)
            factors = np.column_stack([positions, squares, ones])
            # A sum of k products is wrong by at most k roundings of the sum of their sizes, here
            # 2 · (|a|² + |b|²). If |b|² is above 16 |a|², that is negligible against |a − b|².
            return factors @ columns.T, 17 * terms * EPS * squares
        if self._space.linkage == "centroid":
            positions = unit_rows(positions)
        return np.column_stack([positions, ones]) @ columns.T, 2 * terms * EPS * ones

    def _squares(self, positions: Floats, rows: Rows) -> Floats:
        squares = np.einsum("ij,ij->i", positions, positions)
        if self._space.linkage == "average":
            squares += self._variances[rows]
        return np.asarray(squares)
