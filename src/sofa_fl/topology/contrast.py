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

from sofa_fl.topology.bodies import Floats
from sofa_fl.topology.ruler import Ruler
from sofa_fl.topology.space import Space

BLOCK = 1 << 20  # distances measured at a time
FACTOR = 1.07  # a group's clients are nearer to each other than to others by this factor at least
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


class Contrast:
    """Measures clients at these places of a space, by row."""

    def __init__(self, space: Space, places: Floats) -> None:
        self._ruler = Ruler(space, places, np.zeros(len(places)))
        self._sheet = self._ruler.sheet(np.arange(len(places)))

    def between(self, a: Rows, b: Rows) -> Pairs:
        """The pairs of one of `a` and one of `b`."""
        sheet = self._sheet[b]
        step = max(1, BLOCK // len(b))
        found: Pairs | None = None
        for start in range(0, len(a), step):
            rough, error = self._ruler.rough(a[start : start + step], sheet)
            rough[rough <= error[:, None]] = 0.0
            some = Pairs(rough.size, mean := float(rough.mean()), _scatter(rough, mean))
            found = some if found is None else found + some
        assert found is not None
        return found

    def within(self, parts: Sequence[Rows]) -> Pairs | None:
        """The pairs of clients of different parts, if there are any."""
        found: Pairs | None = None
        for at, part in enumerate(parts[:-1], 1):
            some = self.between(part, np.concatenate(parts[at:]))
            found = some if found is None else found + some
        return found

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
        return bool(gap > deviation * max(DEVIATIONS, _student(degrees) * error))


def _scatter(values: Floats, mean: float) -> float:
    away = values.ravel() - mean
    return float(away @ away)


@cache
def _student(degrees: float) -> float:
    """What Student's t exceeds by `CHANCE`."""
    return float(stdtrit(degrees, 1 - CHANCE))
