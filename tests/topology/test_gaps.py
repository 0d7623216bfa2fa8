"""The gaps that make a cluster: what is counted, and every reason for which a join has none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from scipy.stats import t as student

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.dmac import (
    CHANCE,
    CLEARLY,
    FACTOR,
    Branch,
    Pairs,
    _noise,
    dmac,
    has_gap,
    most_extreme,
    stands_out,
)
from tests.topology.strategies import ids, node, space_of


def pairs(num: float, mean: float, deviation: float = 1.0) -> Pairs:
    return Pairs(num, mean, num * deviation**2)


def test_pairs_add_up() -> None:
    values = np.random.default_rng(0).normal(size=30) + 5
    both = Pairs.of(values[:3]) + Pairs.of(values[3:].reshape(9, 3))
    sums = np.array([both.num, both.mean, both.scatter])
    assert_allclose(sums, [30, values.mean(), 30 * values.var()], rtol=1e-12)
    assert Pairs() + Pairs.of(values) == Pairs.of(values)


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
    assert not stands_out(Pairs(1000, 10, 1000), pairs(1, 12.2), 1.0)


def test_no_gap_no_group() -> None:
    assert not stands_out(pairs(9, 5, 0), pairs(9, 5, 0), 1.0)
    assert not stands_out(pairs(9, 0, 0), pairs(9, 0, 0), 1.0)
    assert not stands_out(pairs(50, 13), pairs(50, 10), 1.0)
    assert stands_out(pairs(9, 0, 0), pairs(9, 1e-9, 0), 1.06)


def branch(first: int, size: int, mean: float, parts: Sequence[Branch] = ()) -> Branch:
    """A join of `size` clients from row `first` on."""
    return Branch(np.arange(first, first + size), inner=Pairs(10, mean, 0.1), parts=[*parts])


def client(row: int) -> Branch:
    return Branch(np.array([row]), node(row))


def cluster(first: int, size: int, mean: float) -> Branch:
    made = branch(first, size, mean, [client(first), client(first + 1)])
    made.id = node(100 + first)
    return made


def test_a_join_adds_up_the_clusters_that_it_keeps_and_those_of_joins_that_are_none() -> None:
    total = branch(0, 20, 9.0, [client(0), cluster(1, 3, 2.0), cluster(4, 4, 5.0)])
    for first in (8, 14):
        total.add(branch(first, 6, 7.0, [client(first), cluster(first + 1, 2, 1.0)]))
    total.add(client(19))
    assert [part.id for part in total.parts] == list(ids(0, 101, 104, 8, 109, 14, 115, 19))
    assert total.inner.num == 30
    total.outer = Pairs(10, total.inner.mean, 0.1)  # so near that it is no cluster
    expected = (30.0 + (20 - 11) * total.inner.mean) / 20
    assert total.tightness == pytest.approx(expected)
    total.outer = Pairs(10, 99.0, 0.1)
    assert total.tightness == total.inner.mean


@pytest.mark.parametrize(("times", "expected"), [(0.999, False), (1.001, True)])
def test_a_gap_counts_from_halfway_between_both_joins_and_is_wider_beside_one_client(
    times: float, expected: bool
) -> None:
    join, other = branch(0, 5, 4.0, [client(0)]), branch(5, 5, 6.0, [client(5)])
    other.outer = Pairs(1000, 100.0, 0.1)
    join.outer = Pairs(1000, 5.0 * FACTOR * times, 0.1)
    assert has_gap(join, other) == expected
    join.outer = Pairs(1000, 4.0 * CLEARLY * times, 0.1)
    assert has_gap(join, client(9)) == expected


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_trees_do_not_depend_on_the_unit_of_distances(unit: float) -> None:
    """A group beside one client has no other part to be compared with."""
    rng = np.random.default_rng(1)
    positions = np.concatenate([rng.normal(size=(12, 30)), np.full((1, 30), 20.0)])
    tree = dmac(space_of(unit * positions, linkage="average"), DmacConfig(certain=False))
    assert sorted(len(tree.clients_of(cluster)) for cluster in tree.clusters) == [12, 13]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_rounding_makes_no_gap(offset: float) -> None:
    rng = np.random.default_rng(2)
    squares = space_of(np.repeat(rng.normal(size=(2, 50)), 4, axis=0) + offset).squares
    assert not squares[:4, :4].any()
    assert not squares[4:, 4:].any()
    assert squares[:4, 4:].all()


def test_the_most_extreme_of_equals_is_within_the_bound() -> None:
    assert most_extreme(1, 1, 1) == pytest.approx((2 * np.log(20)) ** 0.5)
    assert most_extreme(2, 3, 100) == pytest.approx((2 * np.log(4950 * 20) / 3) ** 0.5)
    rng = np.random.default_rng(0)
    for k in (1, 3, 10):
        extremes = np.sort(rng.normal(size=(500, 50)), axis=1)[:, -k:].mean(axis=1)
        assert (extremes > most_extreme(k, k, 50)).mean() < 0.05


def test_noise_is_the_spread_of_pairs_of_the_same_groups() -> None:
    positions = np.random.default_rng(2).normal(size=(9, 4))
    squares = cdist(positions, positions, "sqeuclidean")
    groups = [np.arange(4), np.arange(4, 6), np.array([8])]
    kinds = [squares[:4, :4][np.triu_indices(4, 1)], squares[:4, 4:6], squares[:4, 8]]
    kinds += [squares[4:6, 8], squares[4, 5]]
    scatter = sum(kind.size * kind.var() for kind in kinds)
    expected = (scatter / sum(kind.size - 1 for kind in kinds)) ** 0.5
    assert _noise(squares, groups) == pytest.approx(expected)
    assert _noise(squares, [np.array([0]), np.array([1])]) == 0
