"""Mean distances from sums are those of all pairs, and what they rule out is so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from sofa_fl.topology.clustering.fast.distance_bounds import incoherences_at_most, to_rest_at_most
from sofa_fl.topology.clustering.fast.distance_matrix import Ruler
from sofa_fl.topology.clustering.fast.mean_distances import means_of
from sofa_fl.topology.clustering.fast.merge_bounds import near_pairs, surely_apart
from sofa_fl.topology.clustering.split_candidates import Parts, _sorted
from sofa_fl.topology.geometry.space import Metric
from tests.topology.strategies import Case, cases, examples, space_of, tied_places, tree_of


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_means_of_parts_are_those_of_all_pairs(metric: Metric) -> None:
    rng = np.random.default_rng(0)
    tree = tree_of([[0, 1, 2], 3, [4, [5, 6]], 7, 8])
    space = space_of(5 + rng.normal(size=(9, 4)), rng.integers(1, 9, 9), metric, "average")
    bodies, children = space.locate(tree), tree.arrays.children(0)
    means = means_of(space, bodies, children)
    assert means is not None
    labels = np.array([0, 1, 1, 0, 2])
    outer, inner = means.parts(labels)
    parts = Parts(space, bodies, [children[labels == part] for part in range(3)])
    for a in range(3):
        expected = parts.inner(a)
        assert inner[a] == pytest.approx(expected.mean if expected else np.nan, nan_ok=True)
        for b in {0, 1, 2} - {a}:
            assert outer[a, b] == pytest.approx(parts.outer(a, b).mean)
    pair = Parts(space, bodies, [children[:1], children[2:3]])
    assert means.between()[0, 2] == pytest.approx(pair.outer(0, 1).mean)


def test_manhattan_knows_no_means() -> None:
    space = space_of(np.arange(4.0), None, "manhattan")
    tree = tree_of([[0, 1], [2, 3]])
    bodies = space.locate(tree)
    assert means_of(space, bodies, tree.arrays.children(0)) is None
    a, b = (np.array([row]) for row in tree.arrays.children(0))
    assert not surely_apart(space, bodies, a, b).any()


@examples(150)
@given(cases(ties=True, hostile=True))
def test_what_means_set_apart_is_set_apart(case: Case) -> None:
    bodies, order = case.space.locate(case.tree), case.tree.arrays
    a, b = near_pairs(case.space, bodies, np.inf, np.inf)
    for x, y, sure in zip(a, b, surely_apart(case.space, bodies, a, b)):
        if sure:
            assert Parts(case.space, bodies, [order.children(x), order.children(y)]).set_apart()


@pytest.mark.parametrize(("times", "expected"), [(0.999, False), (1.001, True)])
def test_set_apart_begins_where_it_must(times: float, expected: bool) -> None:
    """Two of two clients each: a square of 1 within, and of x² + 1/2 between."""
    x = times * (1.5**2 - 0.5) ** 0.5
    tree, space = tree_of([[0, 1], [2, 3]]), space_of([0, 1, x, x + 1])
    a, b = tree.arrays.children(0)[:, None]
    assert surely_apart(space, space.locate(tree), a, b).all() == expected


@examples(150)
@given(cases(ties=True, hostile=True))
def test_at_most_is_at_least_what_is_measured(case: Case) -> None:
    space, bodies = case.space, case.space.locate(case.tree)
    most = incoherences_at_most(space, bodies)
    assert (most >= space.incoherences(bodies) * (1 - 1e-12)).all()
    up = bodies.order.up
    rows = np.flatnonzero(bodies.settled & (up >= 0) & (bodies.num_children[up] > 1))
    if len(rows):
        positions, inertia = bodies.rest(rows)
        exact = space.gaps(bodies.positions[rows], positions, bodies.inertia[rows], inertia)
        power = Ruler(space, bodies.positions, bodies.inertia).power
        assert (to_rest_at_most(space, bodies, rows) >= exact**power).all()


def test_rows_are_sorted_by_as_few_columns_as_it_takes() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        positions = tied_places(rng, int(rng.integers(2, 30)), int(rng.integers(1, 9))).round(9)
        order, distinct = _sorted(positions)
        assert order.tolist() == np.lexsort(positions.T[::-1]).tolist()
        assert distinct == len(np.unique(positions, axis=0))
