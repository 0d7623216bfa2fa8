"""Positions of many clients: near to exact in linear time, exact where landmarks are enough."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from sofa_fl.methods.rules import positions as positions
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.positions import (
    coordinates,
    embed,
    positions_of,
    sampled_map,
    sketch_size,
    sketched,
)
from sofa_fl.models.sketch import Sketch
from sofa_fl.topology.clustering.dmac import dmac

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.space import DistanceMetric, Space
from sofa_fl.topology.tree import NodeId
from tests.methods.cases import federation, updates_of
from tests.topology.strategies import examples, ids, nested

SIZE, NUM_ENTRIES = 256, 5000


def models(n: int, num_groups: int = 3, noise: float = 1.0) -> list[torch.Tensor]:
    """Models of groups around a common start, each with noise of its own in every entry."""
    draw = torch.Generator().manual_seed(1)
    start = torch.randn(NUM_ENTRIES, generator=draw)
    groups = torch.randn(num_groups, NUM_ENTRIES, generator=draw)
    own = torch.randn(n, NUM_ENTRIES, generator=draw)
    return [start + groups[i % num_groups] + noise * own[i] for i in range(n)]


def distances(rows: object) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return cdist(np.asarray(rows, dtype=np.float64), np.asarray(rows, dtype=np.float64))


@pytest.mark.parametrize(
    ("num_clients", "size"),
    [(20, 838_860), (257, 65_280), (1_000, 16_777), (2_500, 2_748), (10_000, 256), (100_000, 256)],
)
def test_the_more_clients_the_smaller_the_sketches(num_clients: int, size: int) -> None:
    assert sketch_size(SofaConfig().sketch, num_clients) == size


@pytest.mark.parametrize("num_landmarks", [12, 13, 500])
def test_as_many_landmarks_as_clients_make_places_exact(num_landmarks: int) -> None:
    vectors = models(12)
    rows = sketched(vectors, Sketch(SIZE, NUM_ENTRIES, 0), num_landmarks)
    np.testing.assert_allclose(distances(rows), distances(torch.stack(vectors)), rtol=1e-6)


def test_distances_to_landmarks_are_exact_and_the_others_within_the_bound() -> None:
    vectors = models(30)
    exact = distances(torch.stack(vectors)) ** 2
    errors = []
    for seed in range(40):
        rows = sketched(vectors, Sketch(SIZE, NUM_ENTRIES, seed), 6)
        squares = distances(rows) ** 2
        chosen = np.linspace(0, 29, 6).round().astype(int)
        np.testing.assert_allclose(squares[chosen], exact[chosen], rtol=1e-6, atol=1e-4)
        others = np.setdiff1d(np.arange(30), chosen)
        pairs = np.ix_(others, others)
        upper = np.triu_indices(len(others), 1)
        errors.append((squares[pairs] - exact[pairs])[upper] / exact[pairs][upper])
    assert np.mean(np.square(errors)) <= 2 / SIZE
    assert abs(np.mean(errors)) < 0.01


def test_landmarks_explain_what_groups_have_in_common() -> None:
    """A distance across groups is nearer to the truth than by a sketch alone."""
    vectors = models(40, noise=0.3)
    exact = distances(torch.stack(vectors))
    far = exact > exact.max() / 2
    off = {
        num: np.abs(distances(sketched(vectors, Sketch(64, NUM_ENTRIES, 0), num)) - exact)[far]
        for num in (1, 8)
    }
    assert off[8].mean() < off[1].mean() / 2


def test_equal_models_stay_equal() -> None:
    vectors = [m.clone() for m in models(3) for _ in range(5)]
    rows = sketched(vectors, Sketch(SIZE, NUM_ENTRIES, 0), 3)
    space = Space(tuple(map(NodeId, range(15))), rows, np.ones(15))
    apart = space.distances(rows, rows)
    for group in range(3):
        assert apart[5 * group : 5 * group + 5, 5 * group : 5 * group + 5].max() < 1e-6


def test_sketched_groups_are_the_groups_that_there_are() -> None:
    vectors = models(60)
    rows = sketched(vectors, Sketch(SIZE, NUM_ENTRIES, 0), 10)
    space = Space(tuple(map(NodeId, range(60))), rows, np.ones(60), linkage="average")
    tree = dmac(space, DmacConfig())
    found = {frozenset(tree.clients_of(cluster)) for cluster in tree.clusters}
    assert {frozenset(range(k, 60, 3)) for k in range(3)} <= found


def space_of(config: SofaConfig, lots: bool) -> Space:
    fed = federation()
    with pytest.MonkeyPatch.context() as patch:
        if lots:  # as if there were more clients
            patch.setattr(positions, "NUM_EXACT", 4)
            patch.setattr(positions, "NUM_LANDMARKS", 4)
        return embed(updates_of(fed), config, fed)


@pytest.mark.parametrize("place", ["weights", "updates"])
def test_few_clients_are_never_sketched(place: str) -> None:
    kinds = {"weights": SofaConfig(position="weights"), "updates": SofaConfig(position="updates")}
    exact = {
        "weights": SofaConfig(position="weights", sketch=0),
        "updates": SofaConfig(position="updates", sketch=0),
    }
    space = space_of(kinds[place], lots=False)
    np.testing.assert_array_equal(space.positions, space_of(exact[place], lots=False).positions)
    many, all_of = space_of(kinds[place], lots=True), space_of(exact[place], lots=True)
    assert not np.array_equal(many.positions, all_of.positions)
    trees = [dmac(space, DmacConfig()) for space in (many, all_of)]
    assert nested(trees[0]) == nested(trees[1])


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_every_metric_has_places_of_many_clients(metric: DistanceMetric) -> None:
    kinds: dict[str, SofaConfig] = {
        "euclidean": SofaConfig(metric="euclidean"),
        "cosine": SofaConfig(metric="cosine"),
        "manhattan": SofaConfig(metric="manhattan", linkage="centroid"),
    }
    space = space_of(kinds[metric], lots=True)
    if metric == "manhattan":
        assert space.positions.shape[1] == federation().engine.num_trainable
    tree = dmac(space, DmacConfig())
    assert tree.is_compact


def test_latent_places_are_features_however_many_clients() -> None:
    fed = federation()
    models = [update.model for update in updates_of(fed).values()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positions, "NUM_LANDMARKS", 4)
        rows = positions_of(models, [], "latent", "euclidean", fed, 16)
    np.testing.assert_array_equal(rows, positions_of(models, [], "latent", "euclidean", fed))


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
    assert sampled_map({NodeId(i): one for i in range(positions.NUM_EXACT + 1)}, fed) == {}


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
