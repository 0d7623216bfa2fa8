"""Whether a group of clients stands out: the pairs within it against those with others.

Compared are distances to the power in which noise adds up (squares, for the euclidean metric): that
of two clients is what tells them apart, plus the noise of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from sofa_fl.topology.clustering.fast.distance_matrix import Ruler
from sofa_fl.topology.geometry.node_positions import Floats
from sofa_fl.topology.geometry.space import Space

BLOCK = 1 << 20  # distances measured at a time
FACTOR = 1.06  # a group's clients are nearer to each other than to others by this factor at least
CLEARLY = 1.5  # the same, where there may be another reason: one client may be noisier than the
# rest, and clusters that train apart drift apart
DEVIATIONS = 1.5  # and by so many standard deviations of the distances
CHANCE = 0.002  # and by more than would happen this often if there were no difference

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Distances of pairs of clients: how many, their mean, their squared deviations from it."""

    num: float
    mean: float
    scatter: float

    def __add__(self, other: Pairs) -> Pairs:
        num, apart = self.num + other.num, other.mean - self.mean
        mean = self.mean + apart * other.num / num
        between = apart**2 * self.num * other.num / num
        return Pairs(num, mean, self.scatter + other.scatter + between)

    def times(self, factor: float) -> Pairs:
        """As if every pair were there so many times."""
        return Pairs(self.num * factor, self.mean, self.scatter * factor)


class Separation:
    """Measures clients at these positions of a space, by row."""

    def __init__(self, space: Space, positions: Floats) -> None:
        self._ruler = Ruler(space, positions, np.zeros(len(positions)))
        self._sheet = self._ruler.sheet(np.arange(len(positions)))

    def between(self, a: Rows, b: Rows) -> Pairs:
        """The pairs of one of `a` and one of `b`."""
        step = max(1, BLOCK // len(b))
        sheet = self._sheet[b]
        starts = range(0, len(a), step)
        return _total([_pairs(self._measure(a[start : start + step], sheet)) for start in starts])

    def within(self, parts: Sequence[Rows]) -> Pairs | None:
        """The pairs of clients of different parts, if there are any."""
        if len(parts) < 2:
            return None
        rows = np.concatenate(parts)
        of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        step, sheet, found = max(1, BLOCK // len(rows)), self._sheet[rows], list[Pairs]()
        for start in range(0, len(rows), step):
            some = self._measure(rows[start : start + step], sheet[start:])
            later = of[start:] > of[start : start + step, None]
            if later.any():
                found.append(_pairs(some[later]))
        return _total(found)

    def _measure(self, rows: Rows, sheet: Floats) -> Floats:
        rough, error = self._ruler.rough(rows, sheet)
        rough[rough <= error[:, None]] = 0.0
        return rough

    def raised(self, factor: float) -> float:
        """A factor of distances, for what is compared here."""
        return float(factor**self._ruler.power)

    def stands_out(
        self, inner: Pairs, outer: Pairs, factor: float = FACTOR, least: float = 0.0
    ) -> bool:
        """Whether the outer pairs are farther apart than the inner ones, clearly and not by chance.

        Clearly: by `factor`, and by 1.5 standard deviations of the distances, so that few
        overlap. Not by chance: Student's t, which asks for more where there are few pairs.
        Inner pairs nearer than `least` count as that far.
        """
        base = max(inner.mean, least)
        gap = outer.mean - base
        if gap <= 0 or outer.mean < base * self.raised(factor):
            return False
        degrees = inner.num + outer.num - 2
        deviation = ((inner.scatter + outer.scatter) / degrees) ** 0.5
        error = (1 / inner.num + 1 / outer.num) ** 0.5
        return bool(gap > deviation * max(DEVIATIONS, student(degrees) * error))


def _pairs(values: Floats) -> Pairs:
    mean = float(values.mean())
    away = values.ravel() - mean
    return Pairs(values.size, mean, float(away @ away))


def _total(some: Sequence[Pairs]) -> Pairs:
    first, *rest = some
    return sum(rest, first)


@cache
def student(degrees: float) -> float:
    """What Student's t exceeds by `CHANCE`."""
    return float(stdtrit(degrees, 1 - CHANCE))
