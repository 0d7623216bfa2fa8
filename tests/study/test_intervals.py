from __future__ import annotations

from math import inf

import numpy as np
import pytest
from scipy import stats

from study.rows.estimates import Paired, at_level, estimate, holm, p_value, paired


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


def some(seed: int, shift: float, n: int = 6) -> Paired:
    values = np.random.default_rng(seed).normal(shift, 1, n)
    return Paired(estimate(list(values)), int((values > 0).sum()))


def test_p_values_and_levels_are_scipys() -> None:
    values = np.random.default_rng(3).normal(0.5, 1, 7)
    found = estimate(list(values))
    assert p_value(found) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    low, high = stats.t.interval(0.99, 6, values.mean(), stats.sem(values))
    wide = at_level(found, 0.99)
    assert (wide.low, wide.high) == pytest.approx((low, high))
    assert p_value(estimate([0.5])) == 1
    assert at_level(estimate([0.5]), 0.99) == estimate([0.5])
    assert (p_value(estimate([0.5, 0.5])), p_value(estimate([0.0, 0.0]))) == (0, 1)


def test_intervals_after_holm_exclude_zero_where_his_test_does() -> None:
    """By its definition: adjusted p-values are running maxima of (m - k + 1) p."""
    for seed in range(30):
        found = {at: some(100 * seed + at, at / 3) for at in range(9)}
        values = np.array([p_value(gap.estimate) for gap in found.values()])
        order = values.argsort()
        adjusted = np.empty(9)
        adjusted[order] = np.maximum.accumulate(values[order] * np.arange(9, 0, -1))
        after = holm(found)
        assert list(after) == list(found)
        for at, gap in after.items():
            assert (gap.is_ahead or gap.is_behind) == (adjusted[at] <= 0.05)
            assert gap.estimate.half >= found[at].estimate.half
            assert (gap.estimate.mean, gap.wins) == (found[at].estimate.mean, found[at].wins)


def test_one_difference_needs_no_correction() -> None:
    assert holm({"a": some(1, 1.0)})["a"].estimate.half == pytest.approx(some(1, 1.0).estimate.half)
    assert holm({}) == {}


def test_differences_by_chance_are_found_in_few_tables() -> None:
    tables = [{at: some(1000 * table + at, 0.0) for at in range(10)} for table in range(200)]
    raw = sum(any(g.is_ahead or g.is_behind for g in of.values()) for of in tables)
    after = sum(any(g.is_ahead or g.is_behind for g in holm(of).values()) for of in tables)
    assert raw > 50, "without the correction, in many"
    assert after <= 20
