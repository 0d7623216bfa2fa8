"""Mean distances between the clients of nodes, from sums: no pair of clients is measured.

As in `separation`, distances are to the power in which noise adds up, and every client counts once.
Sums round otherwise than pairs do, so these numbers rule out what is clearly not so (`SURE`); what
they leave open is measured pair by pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sofa_fl.topology.clustering.separation import CLEARLY, FACTOR, power_of
from sofa_fl.topology.geometry.node_positions import Floats, NodePositions
from sofa_fl.topology.geometry.space import ROUNDING, Space
from sofa_fl.topology.tree.tree_arrays import Rows

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
