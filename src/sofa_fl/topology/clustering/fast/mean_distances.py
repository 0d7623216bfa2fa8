"""Distances of many nodes to many, by matrix products and by sums: fast, and but for rounding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from sofa_fl.topology.clustering.separation import CLEARLY, FACTOR, power_of
from sofa_fl.topology.geometry.space import ROUNDING, Floats, NodePositions, Space, unit_rows
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


SURE = 1e-6  # a relative difference that rounding cannot make


@dataclass(frozen=True, slots=True)
class MeanDistances:
    """Of nodes none of which is below another.

    Attributes:
        num: Their numbers of clients.
        positions: Means of their clients' positions; euclidean ones from the space's centre.
        levels: The mean distance of two is the sum of their levels, less twice the product of
            their positions, times `slope`.
        sums_within: The distances of all pairs of clients of the same node, summed up.
        slope: 1, or by the cosine metric a half.
        slack: What a mean distance may be off by.
        factors: `FACTOR` and `CLEARLY`, to the power of the metric.
    """

    num: Floats
    positions: Floats
    levels: Floats
    sums_within: Floats
    slope: float
    slack: float
    factors: tuple[float, float]

    @property
    def of_clients(self) -> bool:
        """Whether every node is one client, or as good as one."""
        return bool((self.num == 1).all())

    def between(self) -> Floats:
        """The mean distance of the clients of every node to those of every other."""
        products = (2 * self.slope) * (self.positions @ self.positions.T)
        return np.asarray(np.add.outer(self.levels, self.levels) - products)


def mean_distances(
    space: Space, nodes: NodePositions, families: Mapping[int, Rows]
) -> dict[int, MeanDistances]:
    """Those of each family of nodes, all of them with a position; not by manhattan."""
    unweighted, slack = nodes.unweighted, slack_of(space, nodes)
    sums, centre = sums_within(space, unweighted), space.positions.mean(axis=0)
    power = power_of(space)
    factors = (FACTOR**power, CLEARLY**power)
    means = {}
    for family, rows in families.items():
        num, positions = unweighted.weights[rows], unweighted.positions[rows]
        slope, levels = 0.5, np.full(len(rows), 0.5)
        if space.metric == "euclidean":
            positions = positions - centre
            slope, levels = 1.0, np.einsum("ij,ij->i", positions, positions)
            levels = levels + unweighted.variances[rows]
        means[family] = MeanDistances(num, positions, levels, sums[rows], slope, slack, factors)
    return means


def sums_within(space: Space, unweighted: NodePositions) -> Floats:
    """The distances of all pairs of clients of each node, summed up; not by manhattan."""
    num, positions = unweighted.weights, unweighted.positions
    if space.metric == "euclidean":
        return np.asarray(num**2 * unweighted.variances)
    return np.asarray(num**2 / 2 * (1 - np.einsum("ij,ij->i", positions, positions)))


def slack_of(space: Space, nodes: NodePositions) -> float:
    """What a mean distance may be off by.

    Of positions far from zero the last digits are lost, and with them what is nearer than that.
    """
    if space.metric != "euclidean":
        return 1e-10
    centred = space.positions - space.positions.mean(axis=0)
    extent, farthest = (
        float(np.einsum("ij,ij->i", rows, rows).max()) for rows in (centred, nodes.positions)
    )
    return 1e-10 * extent + 1.6e6 * ROUNDING**2 * farthest
