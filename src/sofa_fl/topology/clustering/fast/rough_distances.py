"""Distances of many nodes to many, by matrix products: fast, and right but for rounding."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from sofa_fl.topology.clustering.separation import power_of
from sofa_fl.topology.geometry.space import Floats, Space, unit_rows
from sofa_fl.topology.tree.tree_arrays import Rows

TRIFLE = 1e-9  # a relative error that rough distances may have besides the error they state
EPS = float(np.finfo(np.float64).eps)


class RoughDistances:
    """Measures nodes by row of `positions` and `variances`, which may be written to in between.

    Attributes:
        power: Rough distances are to this power: squares for the euclidean metric.
    """

    def __init__(self, space: Space, positions: Floats, variances: Floats) -> None:
        self._space, self._positions, self._variances = space, positions, variances
        self._centre = space.positions.mean(axis=0)  # the nearer to zero, the smaller the error
        self.power = power_of(space)

    def columns(self, rows: Rows) -> Floats:
        """What `rough` needs to measure to these nodes, a row for each."""
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
        """Set some of the columns infinitely far from everything."""
        columns[slots] = 0
        columns[slots, -1] = np.inf

    def rough(self, rows: Rows, columns: Floats) -> tuple[Floats, Floats]:
        """Distances, to `power`, of nodes to those of the columns, and how wrong they may be.

        The true distance is within the error of its row plus `TRIFLE` of itself.
        """
        positions = self._positions[rows]
        if self._space.metric == "manhattan":
            return np.asarray(cdist(positions, columns, "cityblock")), np.zeros(len(rows))
        ones, terms = np.ones(len(rows)), positions.shape[1] + 2
        if self._space.metric == "euclidean":
            positions = positions - self._centre
            squares = self._squares(positions, rows)
            factors = np.column_stack([positions, squares, ones])
            # A sum of k products is off by at most k roundings of the sum of their sizes, here
            # 2 · (|a|² + |b|²). Where |b|² is above 16 |a|², that is a trifle of |a − b|².
            return factors @ columns.T, 17 * terms * EPS * squares
        if self._space.linkage == "centroid":
            positions = unit_rows(positions)
        return np.column_stack([positions, ones]) @ columns.T, 2 * terms * EPS * ones

    def _squares(self, positions: Floats, rows: Rows) -> Floats:
        squares = np.einsum("ij,ij->i", positions, positions)
        if self._space.linkage == "average":
            squares += self._variances[rows]
        return np.asarray(squares)
