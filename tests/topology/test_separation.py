"""The separation test: what it counts, and every reason for which a group does not stand out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from scipy.stats import t as student

from sofa_fl.topology.clustering.fast import block_distances
from sofa_fl.topology.clustering.fast.block_distances import FastSeparation
from sofa_fl.topology.clustering.separation import (
    CHANCE,
    PairDistances,
    Separation,
    picked,
    stands_out,
)
from sofa_fl.topology.space import DistanceMetric
from tests.topology.strategies import space_of


def pairs(num: float, mean: float, deviation: float = 1.0) -> PairDistances:
    return PairDistances(num, mean, num * deviation**2)


def test_pairs_add_up() -> None:
    values = np.random.default_rng(0).normal(size=30) + 5
    parts = [PairDistances(len(x), x.mean(), x.var() * len(x)) for x in (values[:3], values[3:])]
    both = parts[0] + parts[1]
    sums = np.array([both.num, both.mean, both.scatter])
    assert_allclose(sums, [30, values.mean(), 30 * values.var()], rtol=1e-12)


@pytest.mark.parametrize(("times", "expected"), [(0.999, False), (1.001, True)])
def test_every_threshold_is_where_it_should_be(times: float, expected: bool) -> None:
    """By a factor, by standard deviations, by chance, and counted from the least that is given."""
    tight = stands_out(pairs(400, 10, 0.01), pairs(400, 10.6 * times, 0.01), 1.06)
    assert tight == expected, "by a factor"
    deviation = np.sqrt(2 * 400 / 798)  # pooled, with two degrees of freedom less
    wide = stands_out(pairs(400, 10), pairs(400, 10 + 1.5 * deviation * times), 1.06)
    assert wide == expected, "by standard deviations"
    for num in (2, 4):
        degrees = 2 * num - 2
        chance = student.ppf(1 - CHANCE, degrees) * np.sqrt(2 / num)
        gap = chance * np.sqrt(2 * num / degrees)
        few = stands_out(pairs(num, 10), pairs(num, 10 + gap * times), 1.0)
        assert few == expected, "by chance"
    least = stands_out(pairs(400, 1, 0.01), pairs(400, 20 * 1.06 * times, 0.01), 1.06, 20)
    assert least == expected, "from the least"


def test_few_inner_pairs_count_as_few_among_many_outer_ones() -> None:
    outer = pairs(1000, 12.2)
    assert stands_out(pairs(1000, 10), outer, 1.0)
    assert not stands_out(pairs(1, 10), outer, 1.0)
    assert not stands_out(PairDistances(1000, 10, 1000), pairs(1, 12.2), 1.0)


def test_no_gap_no_group() -> None:
    assert not stands_out(pairs(9, 5, 0), pairs(9, 5, 0), 1.0)
    assert not stands_out(pairs(9, 0, 0), pairs(9, 0, 0), 1.0)
    assert not stands_out(pairs(50, 13), pairs(50, 10), 1.0)
    assert stands_out(pairs(9, 0, 0), pairs(9, 1e-9, 0), 1.06)


BOTH = pytest.mark.parametrize("kind", [Separation, FastSeparation])


@BOTH
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_pairs_are_counted_once(
    kind: type[Separation], metric: DistanceMetric, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_distances, "BLOCK", block)
    space = space_of(np.random.default_rng(1).normal(size=(9, 3)) + 1, None, metric)
    separation = kind(space)
    names = {"euclidean": "sqeuclidean", "cosine": "cosine", "manhattan": "cityblock"}
    distances = cdist(space.positions, space.positions, names[metric])  # type: ignore[call-overload]
    between = separation.between(np.arange(4), np.arange(4, 9))
    expected = distances[:4, 4:]
    assert (between.num, between.mean) == pytest.approx((20, expected.mean()))
    assert between.scatter == pytest.approx(20 * expected.var())
    parts = [np.array([0, 1]), np.array([2]), np.array([5, 7, 8])]
    values = [
        distances[i, j] for a in range(3) for b in range(a) for i in parts[a] for j in parts[b]
    ]
    within = separation.within(parts)
    assert (within.num, within.mean) == pytest.approx((11, np.mean(values)))
    assert within.scatter == pytest.approx(11 * np.var(values))
    factors = {"euclidean": (1.06**2, 2.25), "cosine": (1.06, 1.5), "manhattan": (1.06, 1.5)}
    assert (separation.factor, separation.clearly) == pytest.approx(factors[metric])


@BOTH
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_rounding_makes_no_distance(kind: type[Separation], offset: float) -> None:
    rng = np.random.default_rng(2)
    rows = np.repeat(rng.normal(size=(2, 50)), 4, axis=0) + offset
    space = space_of(rows)
    separation = kind(space)
    assert separation.between(np.arange(2), np.arange(2, 4)).mean == 0
    far = separation.between(np.arange(4), np.arange(4, 8))
    assert far.mean == pytest.approx(((rows[0] - rows[4]) ** 2).sum(), rel=1e-6)
    near = space_of([0.0, 1e-5, 1.0])
    assert kind(near).between(ids_of(0), ids_of(1)).mean > 0


def ids_of(*rows: int) -> np.ndarray:
    return np.array(rows)


def test_the_most_extreme_of_equals_is_within_the_bound() -> None:
    assert picked(1, 1, 1) == pytest.approx((2 * np.log(20)) ** 0.5)
    assert picked(2, 3, 100) == pytest.approx((2 * np.log(4950 * 20) / 3) ** 0.5)
    rng = np.random.default_rng(0)
    for k in (1, 3, 10):
        extremes = np.sort(rng.normal(size=(500, 50)), axis=1)[:, -k:].mean(axis=1)
        assert (extremes > picked(k, k, 50)).mean() < 0.05


def test_noise_is_the_spread_of_pairs_of_the_same_groups() -> None:
    space = space_of(np.random.default_rng(2).normal(size=(9, 4)))
    squares = cdist(space.positions, space.positions, "sqeuclidean")
    groups = [np.arange(4), np.arange(4, 6), np.array([8])]
    kinds = [squares[:4, :4][np.triu_indices(4, 1)], squares[:4, 4:6], squares[:4, 8]]
    kinds += [squares[4:6, 8], squares[4, 5]]
    scatter = sum(kind.size * kind.var() for kind in kinds)
    expected = (scatter / sum(kind.size - 1 for kind in kinds)) ** 0.5
    assert Separation(space).noise(groups) == pytest.approx(expected)
    assert Separation(space).noise([np.array([0]), np.array([1])]) == 0


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_outliers_are_no_farther_than_the_outermost_might_be(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_distances, "BLOCK", block)
    positions, found = np.random.default_rng(0).normal(size=(8, 20)), set()
    group, others = np.arange(6), np.arange(6, 8)
    for shift in np.linspace(0, 9, 40):
        positions[6:, 0] = shift
        squares = cdist(positions, positions, "sqeuclidean")
        means = squares[:6, :6].sum(axis=1) / 5
        gap = squares[:6, 6:].mean() - means.mean()
        expected = bool(gap <= means.std(ddof=1) * picked(2, 2, 30))
        space = space_of(positions)
        assert Separation(space).are_outliers(others, group, 30) == expected
        found.add(expected)
    assert found == {True, False}
