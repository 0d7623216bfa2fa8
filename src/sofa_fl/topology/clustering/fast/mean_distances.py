"""How far apart clients are on average, from sums: no pair of them is measured.

As in `separation`, distances are to the power in which noise adds up, and every client counts once.
Sums round otherwise than pairs do, so these numbers rule out what is clearly not so (`SURE`); what
they leave open is measured pair by pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sofa_fl.topology.clustering.separation import CLEARLY, FACTOR
from sofa_fl.topology.geometry.node_positions import Floats, NodePositions
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree.tree_arrays import Rows

SURE = 1e-6  # a relative difference that rounding cannot make


@dataclass(frozen=True, slots=True)
class Means:
    """Of nodes none of which is below another.

    Attributes:
        num: Their clients.
        positions: Means of their clients' positions; euclidean ones from the space's centre.
        levels: The mean distance of two is the sum of their levels, less twice the product of
            their positions, times `slope`.
        own: The distances of all pairs of clients of the same node, summed up.
        slope: 1, or by the cosine metric a half.
        slack: What a mean distance may be off by.
        factors: What parts of several clients each are to be set apart by, and others.
    """

    num: Floats
    positions: Floats
    levels: Floats
    own: Floats
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

    def parts(self, labels: Rows) -> tuple[Floats, Floats]:
        """Mean distances of the clients of parts, given the part of each node.

        Of every two parts; and of the different nodes of each, which is not a number for a part
        that is one node alone.
        """
        k = int(labels.max()) + 1
        chosen = (labels == np.arange(k)[:, None]).astype(np.float64)
        num = chosen @ self.num
        sums = (chosen * self.num) @ self.positions
        level = chosen @ (self.num * self.levels)
        outer = np.add.outer(level / num, level / num)
        outer -= 2 * self.slope * (sums @ sums.T) / np.outer(num, num)
        pairs = num**2 - chosen @ self.num**2
        total = num * level - self.slope * np.einsum("ij,ij->i", sums, sums) - chosen @ self.own
        alone = chosen.sum(axis=1) < 2
        inner = np.where(alone, np.nan, 2 * total / np.where(alone, 1, pairs))
        return outer, inner

    def may_stand_out(self, labels: Rows) -> bool:
        """Whether parts are as far apart as they must be: by means alone, and but for rounding."""
        outer, inner = self.parts(labels)
        multi, clearly = self.factors
        several = ~np.isnan(inner)
        single = np.array([self.num[labels == part].sum() == 1 for part in range(len(inner))])
        factor = np.where(single[None, :] | (not self.of_clients), clearly, multi)
        halfway = np.where(several[None, :], np.add.outer(inner, inner) / 2, 0.0)
        least = np.fmax(inner[:, None], halfway) * factor
        short = outer < least * (1 - SURE) - self.slack
        np.fill_diagonal(short, False)
        return not bool(short[several].any())


def means_of(space: Space, bodies: NodePositions, rows: Rows) -> Means | None:
    """Of these nodes, all of them somewhere, unless the metric knows no means."""
    if space.metric == "manhattan":
        return None
    even = bodies.even
    num, positions = bodies.num[rows].astype(np.float64), even.positions[rows]
    power = 2 if space.metric == "euclidean" else 1
    factors = (FACTOR**power, CLEARLY**power)
    own = sums_within(space, even, bodies.num)[rows]
    slack = blur(space, bodies)
    if space.metric == "cosine":
        return Means(num, positions, np.full(len(rows), 0.5), own, 0.5, slack, factors)
    positions = positions - space.centre
    levels = np.einsum("ij,ij->i", positions, positions) + even.inertia[rows]
    return Means(num, positions, levels, own, 1.0, slack, factors)


def sums_within(space: Space, even: NodePositions, num: Rows) -> Floats:
    """The distances of all pairs of clients of each node, summed up; not by manhattan."""
    if space.metric == "euclidean":
        return np.asarray(num**2 * even.inertia)
    return np.asarray(num**2 / 2 * (1 - np.einsum("ij,ij->i", even.positions, even.positions)))


def blur(space: Space, bodies: NodePositions) -> float:
    """What a mean distance may be off by.

    Of positions far from zero the last digits are lost, and with them what is nearer than that.
    """
    return 1e-10 * (space.extent + 1e15 * bodies.rounding if space.metric == "euclidean" else 1.0)
