"""Means with 95% intervals (Student's t), over seeds, and of differences seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95


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
    quantile = float(stdtrit(n - 1, (1 + LEVEL) / 2))
    half = quantile * float(np.std(values, ddof=1)) / sqrt(n)
    return Estimate(float(np.mean(values)), half, n)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Paired | None:
    """Ours minus theirs over the seeds that both have; None where they have none in common."""
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    differences = [ours[seed] - theirs[seed] for seed in seeds]
    return Paired(estimate(differences), sum(difference > 0 for difference in differences))
