"""Means with 95% intervals (Student's t), over seeds, of differences seed by seed, and of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from typing import TypeVar

import numpy as np
from scipy.special import stdtr, stdtrit

LEVEL = 0.95

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of `n` values, and half the width of its interval: infinite for one value alone."""

    mean: float
    half: float
    n: int

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


@dataclass(frozen=True, slots=True)
class Paired:
    """Differences by seed: their mean with its interval, and how many of them are above zero."""

    estimate: Estimate
    wins: int

    @property
    def is_behind(self) -> bool:
        """Whether the difference is below zero, as far as can be told."""
        return self.estimate.high < 0

    @property
    def is_ahead(self) -> bool:
        return self.estimate.low > 0


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of values and its interval."""
    n = len(values)
    if n < 2:
        return Estimate(float(np.mean(values)), inf, n)
    half = _quantile(n, LEVEL) * float(np.std(values, ddof=1)) / sqrt(n)
    return Estimate(float(np.mean(values)), half, n)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Paired | None:
    """Ours minus theirs over the seeds that both have; None where they have none in common."""
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    differences = [ours[seed] - theirs[seed] for seed in seeds]
    return Paired(estimate(differences), sum(difference > 0 for difference in differences))


def p_value(found: Estimate) -> float:
    """Of the two-sided t-test that the mean is zero; 1 for a value alone."""
    if not isfinite(found.half) or not found.mean:
        return 1.0
    if not found.half:
        return 0.0
    statistic = abs(found.mean) / found.half * _quantile(found.n, LEVEL)
    return float(2 * stdtr(found.n - 1, -statistic))


def at_level(found: Estimate, level: float) -> Estimate:
    """The same mean with an interval of another level."""
    if not isfinite(found.half) or not found.half:
        return found
    return replace(found, half=found.half * _quantile(found.n, level) / _quantile(found.n, LEVEL))


def holm(found: Mapping[Key, Paired]) -> dict[Key, Paired]:
    """Many differences, with intervals after Holm's correction (1979).

    From the smallest p-value on, the k-th of m differences has an interval of the level
    1 - 0.05 / (m - k + 1), until one contains zero: all that follow have its level. So an interval
    excludes zero just where Holm's test finds a difference, and the chance that any of them does
    without there being one is at most 5%.
    """
    corrected: dict[Key, Paired] = {}
    left, is_clear = len(found), True
    for key in sorted(found, key=lambda key: p_value(found[key].estimate)):
        one = found[key]
        estimate = at_level(one.estimate, 1 - (1 - LEVEL) / left)
        corrected[key] = replace(one, estimate=estimate)
        is_clear = is_clear and p_value(one.estimate) <= (1 - LEVEL) / left
        left -= is_clear
    return {key: corrected[key] for key in found}


def _quantile(n: int, level: float) -> float:
    return float(stdtrit(n - 1, (1 + level) / 2))
