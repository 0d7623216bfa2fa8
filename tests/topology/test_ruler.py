"""Rough distances are within the error they state of the exact ones, whatever the positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.clustering.fast.distance_matrix import TRIFLE, Ruler
from sofa_fl.topology.geometry.space import Linkage, Metric, Space
from tests.topology.strategies import WAYS, examples, generic_places, ids, tied_places

SEEDS = st.integers(0, 2**32 - 1)


def ruler_of(
    rng: np.random.Generator, n: int, d: int, metric: Metric, linkage: Linkage
) -> tuple[Ruler, Space]:
    positions = tied_places(rng, n, d) if rng.integers(2) else generic_places(rng, n, d, True, 1e-9)
    positions = positions + rng.choice([0, 0, 1e3, 1e8])
    positions[0] *= rng.choice([1, 1e6])  # one that has left all others behind
    space = Space(ids(*range(n)), positions, np.ones(n), metric, linkage)
    inertia = rng.uniform(0, 2, n) * rng.choice([0, 1e-3, 1])
    return Ruler(space, space.positions, inertia), space


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
@examples(40)
@given(seed=SEEDS, n=st.integers(2, 30), d=st.integers(1, 12))
def test_rough_distances_are_as_wrong_as_they_say(
    metric: Metric, linkage: Linkage, seed: int, n: int, d: int
) -> None:
    ruler, _ = ruler_of(np.random.default_rng(seed), n, d, metric, linkage)
    rows = np.arange(n)
    rough, error = ruler.rough(rows, ruler.sheet(rows))
    exact = ruler.between(rows, rows)
    np.fill_diagonal(exact, 0)
    exact = exact**ruler.power
    off = np.abs(rough - exact)
    np.fill_diagonal(off, 0)
    # What rounding makes is exactly nothing, so up to that the rough distance may be more.
    nothing = exact == 0
    assert (off <= error[:, None] + TRIFLE * exact)[~nothing].all()


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
@examples(40)
@given(seed=SEEDS, n=st.integers(2, 30), d=st.integers(1, 12))
def test_gaps_are_the_distances_row_by_row(
    metric: Metric, linkage: Linkage, seed: int, n: int, d: int
) -> None:
    rng = np.random.default_rng(seed)
    ruler, _ = ruler_of(rng, n, d, metric, linkage)
    a, b = rng.integers(0, n, 50), rng.integers(0, n, 50)
    apart = ruler.between(np.arange(n), np.arange(n))
    np.fill_diagonal(apart, 0)
    expected = np.where(a == b, ruler.gaps(a, a), apart[a, b])
    np.testing.assert_allclose(ruler.gaps(a, b), expected, rtol=1e-9, atol=3e-15)


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_what_is_cleared_is_infinitely_far(metric: Metric, linkage: Linkage) -> None:
    ruler, _ = ruler_of(np.random.default_rng(3), 9, 4, metric, linkage)
    sheet = ruler.sheet(np.arange(9))
    ruler.clear(sheet, np.array([2, 5]))
    rough, _ = ruler.rough(np.arange(9), sheet)
    assert np.isinf(rough[:, [2, 5]]).all()
    assert np.isfinite(np.delete(rough, [2, 5], axis=1)).all()


def test_no_gaps_of_nothing() -> None:
    ruler, _ = ruler_of(np.random.default_rng(3), 9, 4, "euclidean", "average")
    assert ruler.gaps(np.arange(0), np.arange(0)).shape == (0,)
