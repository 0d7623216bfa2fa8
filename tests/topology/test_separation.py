"""The separation test: what it counts, and every reason for which a group does not stand out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from scipy.stats import t as student

from sofa_fl.topology.clustering import separation as module
from sofa_fl.topology.clustering.separation import (
    CHANCE,
    Pairs,
    PartSeparation,
    Separation,
    stands_out,
)
from sofa_fl.topology.geometry.space import Metric
from sofa_fl.topology.tree import flat_tree
from tests.topology.strategies import space_of, tree_of


def pairs(num: float, mean: float, deviation: float = 1.0) -> Pairs:
    return Pairs(num, mean, num * deviation**2)


def test_pairs_add_up() -> None:
    values = np.random.default_rng(0).normal(size=30) + 5
    parts = [Pairs(len(x), x.mean(), x.var() * len(x)) for x in (values[:3], values[3:])]
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
    assert not stands_out(Pairs(1000, 10, 1000), pairs(1, 12.2), 1.0)


def test_no_gap_no_group() -> None:
    assert not stands_out(pairs(9, 5, 0), pairs(9, 5, 0), 1.0)
    assert not stands_out(pairs(9, 0, 0), pairs(9, 0, 0), 1.0)
    assert not stands_out(pairs(50, 13), pairs(50, 10), 1.0)
    assert stands_out(pairs(9, 0, 0), pairs(9, 1e-9, 0), 1.06)


def test_many_at_once_are_each_one() -> None:
    rng = np.random.default_rng(0)
    inner, outer = (
        Pairs(
            rng.integers(2, 9, 50).astype(np.float64),
            rng.uniform(1, 3, 50),
            rng.uniform(0, 3, 50),
        )
        for _ in range(2)
    )
    together = stands_out(inner, outer, 1.06, 1.5)
    one_by_one = [
        bool(stands_out(Pairs(*a), Pairs(*b), 1.06, 1.5))
        for a, b in zip(
            zip(inner.num, inner.mean, inner.scatter),  # type: ignore[arg-type]
            zip(outer.num, outer.mean, outer.scatter),  # type: ignore[arg-type]
        )
    ]
    assert together.tolist() == one_by_one
    assert 0 < together.sum() < 50


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_pairs_are_counted_once(
    metric: Metric, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    space = space_of(np.random.default_rng(1).normal(size=(9, 3)) + 1, None, metric)
    separation = Separation(space, space.positions)
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
    assert within is not None
    assert (within.num, within.mean) == pytest.approx((11, np.mean(values)))
    assert within.scatter == pytest.approx(11 * np.var(values))
    assert separation.within(parts[:1]) is None
    factors = {"euclidean": (1.06**2, 2.25), "cosine": (1.06, 1.5), "manhattan": (1.06, 1.5)}
    assert (separation.factor, separation.clearly) == pytest.approx(factors[metric])


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_rounding_makes_no_distance(offset: float) -> None:
    rng = np.random.default_rng(2)
    rows = np.repeat(rng.normal(size=(2, 50)), 4, axis=0) + offset
    space = space_of(rows)
    separation = Separation(space, space.positions)
    assert separation.between(np.arange(2), np.arange(2, 4)).mean == 0
    far = separation.between(np.arange(4), np.arange(4, 8))
    assert far.mean == pytest.approx(((rows[0] - rows[4]) ** 2).sum(), rel=1e-6)
    near = space_of([0.0, 1e-5, 1.0])
    assert Separation(near, near.positions).between(ids_of(0), ids_of(1)).mean > 0


def ids_of(*rows: int) -> np.ndarray:
    return np.array(rows)


def separation_of(drawn: list, positions: list[float], weights: list[float] | None = None):  # type: ignore
    """That of the children of the two clusters of a tree."""
    tree, space = tree_of(drawn), space_of(positions, weights)
    children = [tree.arrays.children(row) for row in tree.arrays.children(0)]
    return PartSeparation(space, space.locate(tree), children)


def test_inner_pairs_are_those_of_different_children() -> None:
    positions = [0.0, 1, 3, 10, 12]
    found = separation_of([[[0, 1], 2], [3, 4]], positions, [1, 7, 3, 2, 9])
    inner = found._inner
    assert (inner[0].num, inner[0].mean) == pytest.approx((2, (9 + 4) / 2)), "0-2 and 1-2"
    assert (inner[1].num, inner[1].mean) == pytest.approx((1, 4)), "weights do not count"
    squares = (np.array(positions)[:3, None] - np.array(positions)[None, 3:]) ** 2
    outer = found.outer(0, 1)
    assert (outer.num, outer.mean) == pytest.approx((6, squares.mean()))
    assert outer.scatter == pytest.approx(squares.var() * 6)


@pytest.mark.parametrize(("times", "expected"), [(0.999, False), (1.001, True)])
def test_set_apart_is_by_half_as_much_again(times: float, expected: bool) -> None:
    """Two of two clients each: a square of 1 within, and of x² + 1/2 between."""
    x = times * (1.5**2 - 0.5) ** 0.5
    assert separation_of([[0, 1], [2, 3]], [0, 1, x, x + 1]).set_apart() == expected


def test_one_tight_part_is_enough_to_be_set_apart() -> None:
    assert separation_of([[0, 1], [2, 3]], [0, 0.1, 2, 9]).set_apart()
    assert separation_of([[2, 3], [0, 1]], [0, 0.1, 2, 9]).set_apart()
    assert not separation_of([[0], [1, 2]], [0, 0.1, 9]).set_apart(), "one child has no width"
    assert not separation_of([[0], [1]], [0, 9]).set_apart()


def stand_out(positions: np.ndarray, *parts: list[int], drawn: list | None = None) -> bool:  # type: ignore
    space = space_of(positions, linkage="average")
    tree = tree_of(drawn) if drawn else flat_tree(space.clients)
    children = tree.arrays.children(0)
    rows = [children[part] for part in parts]
    return PartSeparation(space, space.locate(tree), rows).stand_out()


def apart(sizes: list[int], ratio: float) -> np.ndarray:
    """Groups at one squared distance within, and `ratio` times that to all others."""
    groups = np.repeat(np.eye(len(sizes)), sizes, axis=0)
    return np.hstack([np.eye(len(groups)), (ratio - 1) ** 0.5 * groups])


@pytest.mark.parametrize(("times", "expected"), [(0.999, False), (1.001, True)])
def test_parts_of_clients_stand_out_by_six_percent_and_others_by_half(
    times: float, expected: bool
) -> None:
    few = apart([4, 4, 4], 1.06**2 * times)
    assert stand_out(few, [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]) == expected
    alone = apart([4, 1], 1.5**2 * times)
    assert stand_out(alone, [0, 1, 2, 3], [4]) == expected, "a client alone may be noisier"
    pairs_of = [[0, 1], [2, 3], [4, 5], [6, 7]]
    clusters = apart([4, 4], 1.5**2 * times)
    assert stand_out(clusters, [0, 1], [2, 3], drawn=pairs_of) == expected, "clusters drift apart"


def test_one_part_that_does_not_stand_out_is_enough() -> None:
    """The third group is near to the second, and the first far from both."""
    positions = np.hstack([np.eye(12), np.repeat([[0.0], [9.0], [9.1]], 4, axis=0)])
    parts = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert not stand_out(positions, *parts)
    assert not stand_out(positions, parts[1], parts[2], parts[0])
    assert stand_out(positions, parts[0], parts[1] + parts[2])


def test_of_parts_that_are_not_equally_tight_the_gap_counts_from_halfway() -> None:
    """Squares: 1 within the tight one, 3 within the loose; halfway is 2."""
    rows = np.diag([0.5**0.5] * 4 + [1.5**0.5] * 4)
    for between, expected in ((2 * 1.06**2 * 1.01, False), (3 * 1.06**2 * 1.01, True)):
        shift = np.repeat([[0.0], [(between - 2) ** 0.5]], 4, axis=0)
        positions = np.hstack([rows, shift])
        tight, loose = [0, 1, 2, 3], [4, 5, 6, 7]
        assert stand_out(positions, tight, loose) == expected, "the loose one must stand out too"


def test_every_part_is_tested_from_halfway_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares: 1 within the first, 9 within the second; a client alone has none."""
    least: list[float] = []

    def watched(inner: Pairs, outer: Pairs, factor: float, halfway: float) -> bool:
        least.append(halfway)
        return True

    monkeypatch.setattr(module, "stands_out", watched)
    positions = np.array([[0.0], [1], [50], [53], [200]])
    assert stand_out(positions, [0, 1], [2, 3], [4])
    assert least == pytest.approx([5, 0, 5, 0])


def test_children_without_a_position_do_not_count() -> None:
    tree = tree_of([[0, 1, 5], [2, 3], [4, 6]])
    space = space_of([0, 1, 10, 11, 20])
    nodes = space.locate(tree)
    children = [tree.arrays.children(row) for row in tree.arrays.children(0)]
    found = PartSeparation(space, nodes, children)
    assert found._inner[0] is not None
    assert found._inner[0].num == 1
    assert found._inner[2] is None
