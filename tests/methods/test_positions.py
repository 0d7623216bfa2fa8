"""Coordinates with given inner products, and the map of methods that have no positions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from sofa_fl.methods import positions
from sofa_fl.methods.positions import coordinates, sampled_map
from sofa_fl.topology.space import DistanceMetric, Space
from sofa_fl.topology.tree import NodeId
from tests.methods.cases import federation
from tests.topology.strategies import examples, ids

NUM_ENTRIES = 5000


def models(n: int, num_groups: int = 3, noise: float = 1.0) -> list[torch.Tensor]:
    """Models of groups around a common start, each with noise of its own in every entry."""
    draw = torch.Generator().manual_seed(1)
    start = torch.randn(NUM_ENTRIES, generator=draw)
    groups = torch.randn(num_groups, NUM_ENTRIES, generator=draw)
    own = torch.randn(n, NUM_ENTRIES, generator=draw)
    return [start + groups[i % num_groups] + noise * own[i] for i in range(n)]


def distances(rows: object) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return cdist(np.asarray(rows, dtype=np.float64), np.asarray(rows, dtype=np.float64))


def test_a_map_of_a_sample_shows_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "NUM_SAMPLED", 500)
    fed = federation(9)
    monkeypatch.setattr(type(fed.engine), "num_trainable", NUM_ENTRIES)
    known = dict(zip(fed.clients, models(9)))
    found = sampled_map(known, fed)
    assert list(found) == list(fed.clients)
    apart = distances(list(found.values()))
    alike = np.equal.outer(np.arange(9) % 3, np.arange(9) % 3)
    assert apart[alike].max() < apart[~alike].min()


def test_of_one_or_too_many_there_is_no_map() -> None:
    fed = federation(2)
    one = torch.zeros(6)
    assert sampled_map({}, fed) == {}
    assert sampled_map({NodeId(0): one}, fed) == {}
    assert sampled_map(dict.fromkeys(fed.clients, one), fed) == dict.fromkeys((0, 1), (0.0, 0.0))
    assert sampled_map({NodeId(i): one for i in range(positions.FEW + 1)}, fed) == {}


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 40))
def test_coordinates_keep_distances(seed: int, n: int, dimensions: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(n, dimensions)) + 1
    points = coordinates(vectors @ vectors.T)
    assert points.shape == (n, n)
    assert_allclose(cdist(points, points), cdist(vectors, vectors), atol=1e-6)
    assert_allclose(cdist(points, points, "cosine"), cdist(vectors, vectors, "cosine"), atol=1e-6)


def test_coordinates_keep_small_differences_of_large_models() -> None:
    rng = np.random.default_rng(10)
    vectors = rng.normal(size=5000) + 1e-3 * rng.normal(size=(6, 5000))
    points = coordinates(vectors @ vectors.T)
    assert_allclose(cdist(points, points), cdist(vectors, vectors), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("copies", [1, 3, 10])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_coordinates_do_not_set_equal_rows_apart(metric: DistanceMetric, copies: int) -> None:
    vectors = np.repeat(np.random.default_rng(11).normal(size=(2, 5000)), [copies, 4], axis=0)
    points = coordinates(vectors @ vectors.T)
    n = len(points)
    space = Space(ids(*range(n)), points, np.ones(n), metric)
    apart = space.distances(space.positions, space.positions)
    assert not apart[:copies, :copies].any()
    assert not apart[copies:, copies:].any()
    assert apart[:copies, copies:].min() > 0.5


def test_coordinates_of_zeros_are_zeros() -> None:
    assert not coordinates(np.zeros((3, 3))).any()
