from __future__ import annotations

from math import inf

import numpy as np
import pytest
from scipy import stats

from study.rows.intervals import estimate, paired


@pytest.mark.parametrize("n", [2, 5, 30])
def test_the_interval_is_scipys(n: int) -> None:
    values = np.random.default_rng(n).normal(0.9, 0.05, n)
    found = estimate(list(values))
    low, high = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
    assert (found.low, found.high, found.n) == pytest.approx((low, high, n))


def test_paired_differences_are_scipys() -> None:
    ours, theirs = np.random.default_rng(0).normal(0.9, 0.05, (2, 5))
    found = paired(dict(enumerate(ours)), dict(enumerate(theirs)))
    assert found is not None
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.estimate.low, found.estimate.high) == pytest.approx(tuple(interval))
    assert found.wins == int((ours > theirs).sum())


def test_only_common_seeds_are_paired() -> None:
    found = paired({0: 0.9, 1: 0.8, 7: 0.1}, {0: 0.8, 1: 0.9, 5: 0.9})
    assert found is not None
    assert (found.estimate.n, found.wins) == (2, 1)
    assert paired({0: 0.9}, {1: 0.9}) is None


def test_one_value_has_no_interval() -> None:
    assert (estimate([0.9]).mean, estimate([0.9]).half) == (0.9, inf)


def test_ahead_and_behind() -> None:
    clear = paired({0: 0.9, 1: 0.91, 2: 0.9}, {0: 0.8, 1: 0.81, 2: 0.805})
    assert clear is not None
    assert clear.is_ahead
    assert not clear.is_behind
    unclear = paired({0: 0.9, 1: 0.7}, {0: 0.8, 1: 0.8})
    assert unclear is not None
    assert not unclear.is_ahead
    assert not unclear.is_behind
