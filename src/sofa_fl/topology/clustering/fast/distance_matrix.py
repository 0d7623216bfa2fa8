"""Distances of many to many: roughly by a matrix product, exactly where it matters.

A matrix product gives all distances at the speed of the machine, but for an error that grows with
the lengths of the positions: near pairs are to be measured again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from sofa_fl.topology.geometry.node_positions import Floats
from sofa_fl.topology.geometry.space import Space, unit_rows

Rows = NDArray[np.intp]
TRIFLE = 1e-9  # a relative error of rough distances that nobody needs to mind


class Ruler:
    """Measures nodes by row of `positions` and `inertia`, which may be written to in between.

    Attributes:
        power: Rough distances are to this power: squares for the euclidean metric.
    """

    def __init__(self, space: Space, positions: Floats, inertia: Floats) -> None:
        self._space, self._positions, self._inertia = space, positions, inertia
        self._centre = space.centre  # the nearer to zero, the smaller the error
        self.power = 2 if space.metric == "euclidean" else 1

    def sheet(self, rows: Rows) -> Floats:
        """What `rough` needs to measure to these nodes."""
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
    def clear(sheet: Floats, slots: Rows) -> None:
        """Set rows of a sheet infinitely far from everything."""
        sheet[slots] = 0
        sheet[slots, -1] = np.inf

    def rough(self, rows: Rows, sheet: Floats) -> tuple[Floats, Floats]:
        """Distances, to `power`, of nodes to those of a sheet, and how wrong they may be.

        True of each is that it lies within the error of its row plus a trifle of itself.
        """
        positions = self._positions[rows]
        if self._space.metric == "manhattan":
            return np.asarray(cdist(positions, sheet, "cityblock")), np.zeros(len(rows))
        ones, terms = np.ones(len(rows)), positions.shape[1] + 2
        if self._space.metric == "euclidean":
            positions = positions - self._centre
            squares = self._squares(positions, rows)
            left = np.column_stack([positions, squares, ones])
            # A sum of k products is off by at most k roundings of the sum of their sizes, here
            # 2 · (|a|² + |b|²). Where |b|² is above 16 |a|², that is a trifle of |a − b|².
            return left @ sheet.T, 34 * terms * np.finfo(np.float64).eps / 2 * squares
        if self._space.linkage == "centroid":
            positions = unit_rows(positions)
        left = np.column_stack([positions, ones])
        return left @ sheet.T, 2 * terms * np.finfo(np.float64).eps * ones

    def between(self, a: Rows, b: Rows) -> Floats:
        """Distance of every node in `a` to every one in `b`; infinite to itself."""
        positions, inertia = self._positions, self._inertia
        apart = self._space.apart(positions[a], positions[b], inertia[a], inertia[b])
        apart[a[:, None] == b[None, :]] = np.inf
        return apart

    def gaps(self, a: Rows, b: Rows) -> Floats:
        """Distance of each node in `a` to that in the same row of `b`."""
        positions, inertia = self._positions, self._inertia
        step = max(1, (1 << 20) // positions.shape[1])
        parts = [
            self._space.gaps(positions[i], positions[j], inertia[i], inertia[j])
            for i, j in (
                (a[start : start + step], b[start : start + step])
                for start in range(0, len(a), step)
            )
        ]
        return np.concatenate([np.empty(0), *parts])

    def _squares(self, positions: Floats, rows: Rows) -> Floats:
        squares = np.einsum("ij,ij->i", positions, positions)
        if self._space.linkage == "average":
            squares += self._inertia[rows]
        return np.asarray(squares)
