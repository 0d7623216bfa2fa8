"""Positions: a cluster is the mean of its clients, distances are SciPy's, scale is the spread."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from sofa_fl.errors import TopologyError
from sofa_fl.topology.space import DistanceMetric, Floats, Linkage, Space
from tests.topology.strategies import METRICS, WAYS, ids, tree_of


def random_space(
    rng: np.random.Generator,
    n: int,
    metric: DistanceMetric = "euclidean",
    linkage: Linkage = "centroid",
    dimensions: int = 3,
) -> Space:
    weights = rng.integers(1, 50, n).astype(np.float64)
    return Space(ids(*range(n)), rng.normal(size=(n, dimensions)) + 0.5, weights, metric, linkage)


def all_between(space: Space) -> Floats:
    return space.distances(space.positions, space.positions)


def cluster_distance(space: Space) -> float:
    """That of the first three of seven clients to the others."""
    nodes = space.locate(tree_of([[0, 1, 2], [3, 4, 5, 6]]))
    return float(nodes.distances(ids(8), ids(9))[0, 0])


@pytest.mark.parametrize("metric", METRICS)
def test_distances_are_those_of_scipy(metric: DistanceMetric) -> None:
    rng = np.random.default_rng(0)
    space = random_space(rng, 9, metric, dimensions=4)
    raw = rng.normal(size=(9, 4)) * np.arange(1, 10)[:, None]
    space = Space(space.clients, raw, space.weights, metric)
    expected = cdist(raw, raw, metric)
    assert_allclose(all_between(space), expected, atol=1e-12)
    some = space.distances(space.positions[[2]], space.positions[[5, 7, 2]])
    assert some.shape == (1, 3)
    assert_allclose(some[0], expected[2, [5, 7, 2]], atol=1e-12)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_distances_have_a_row_and_a_column_for_each(way: tuple[DistanceMetric, Linkage]) -> None:
    """Not more, whether variances are named or not: with 10,000 clients that would be gigabytes."""
    space = random_space(np.random.default_rng(2), 5, *way)
    one = space.positions[:1]
    expected = all_between(space)[:, :1]
    for variances in (0.0, np.zeros((5, 1)), np.zeros(1)):
        distances = space.distances(space.positions, one, variances)
        assert distances.shape == (5, 1)
        assert_allclose(distances, expected)


@pytest.mark.parametrize("metric", METRICS)
def test_centroid_linkage_is_the_distance_of_the_places(metric: DistanceMetric) -> None:
    space = random_space(np.random.default_rng(1), 7, metric)
    parts = (slice(0, 3), slice(3, 7))
    means = [np.average(space.positions[p], axis=0, weights=space.weights[p]) for p in parts]
    expected = cdist(means[:1], means[1:], metric)[0, 0]
    assert_allclose(cluster_distance(space), expected)


def pair_mean(values: Floats, left: Floats, right: Floats) -> float:
    return float(left @ values @ right / left.sum() / right.sum())


def test_average_linkage_is_the_root_mean_square_over_pairs() -> None:
    space = random_space(np.random.default_rng(2), 7, linkage="average")
    squares = cdist(space.positions[:3], space.positions[3:]) ** 2
    expected = np.sqrt(pair_mean(squares, space.weights[:3], space.weights[3:]))
    assert_allclose(cluster_distance(space), expected)


def test_average_linkage_by_cosine_is_the_mean_over_pairs() -> None:
    space = random_space(np.random.default_rng(3), 7, "cosine", "average")
    values = cdist(space.positions[:3], space.positions[3:], "cosine")
    expected = pair_mean(values, space.weights[:3], space.weights[3:])
    assert_allclose(cluster_distance(space), expected)


@pytest.mark.parametrize("linkage", ["centroid", "average"])
def test_a_zero_vector_is_at_distance_one_from_every_direction(linkage: Linkage) -> None:
    positions = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, -2.0], [0.0, 0.0]])
    space = Space(ids(0, 1, 2, 3), positions, np.ones(4), "cosine", linkage)
    assert_allclose(all_between(space)[0], 1)
    assert np.isfinite(space.scale)


@pytest.mark.parametrize("linkage", ["centroid", "average"])
def test_by_cosine_lengths_do_not_count(linkage: Linkage) -> None:
    rng = np.random.default_rng(4)
    space = random_space(rng, 8, "cosine", linkage)
    longer = space.positions * rng.uniform(0.1, 1e6, size=(8, 1))
    again = Space(space.clients, longer, space.weights, "cosine", linkage)
    assert_allclose(all_between(again), all_between(space), atol=1e-12)
    assert_allclose(again.scale, space.scale)


def test_opposite_directions_are_at_distance_two() -> None:
    space = Space(ids(0, 1), np.array([[1.0, 1.0], [-3.0, -3.0]]), np.ones(2), "cosine")
    assert_allclose(all_between(space), [[0, 2], [2, 0]], atol=1e-12)


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_rounding_makes_no_distance(metric: DistanceMetric, linkage: Linkage) -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        place, weights = rng.normal(size=3), rng.integers(1, 99, 6).astype(np.float64)
        space = Space(ids(*range(6)), np.tile(place, (6, 1)), weights, metric, linkage)
        tree = tree_of([[0, 1], [2, 3, 4], 5])
        nodes = space.locate(tree)
        assert not nodes.distances(tree.parent, tree.parent).any()
        assert space.scale == 0
        assert nodes.incoherence(tree.parent) == 0
        assert space.incoherence_of(tree) == dict.fromkeys(tree.clusters, 0)


def test_a_small_difference_is_a_difference() -> None:
    space = Space(ids(0, 1), np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]]), np.ones(2))
    assert_allclose(all_between(space)[0, 1], 1e-9, rtol=1e-6)
    assert space.scale > 0


def test_the_scale_grows_with_the_places() -> None:
    space = random_space(np.random.default_rng(6), 20)
    larger = Space(space.clients, space.positions * 1000, space.weights)
    assert_allclose(larger.scale, 1000 * space.scale)
    tree = tree_of([[0, 1, 2], list(range(3, 20))])
    incoherences, nodes = space.incoherence_of(tree), space.locate(tree)
    assert larger.incoherence_of(tree) == pytest.approx(incoherences)
    for cluster in tree.clusters:
        rows = nodes.rows(tree.children[cluster])
        spread = space.spread(nodes.positions[rows], nodes.weights[rows])
        assert_allclose(incoherences[cluster], spread / space.scale)
        assert_allclose(nodes.incoherence(tree.children[cluster]), spread / space.scale)


def test_the_scale_does_not_move_with_the_places() -> None:
    space = random_space(np.random.default_rng(7), 20)
    moved = Space(space.clients, space.positions + 100, space.weights)
    assert_allclose(moved.scale, space.scale)


def test_one_client_has_no_scale() -> None:
    space = Space(ids(3), np.array([[1.0, 2.0]]), np.array([5.0]))
    assert space.scale == 0
    assert space.spread(space.positions[:0], space.weights[:0]) == 0
    assert space.locate(tree_of(3)).incoherence(ids(3)) == 0


@pytest.mark.parametrize("linkage", ["centroid", "average"])
def test_spread_is_the_unbiased_variance(linkage: Linkage) -> None:
    positions = np.random.default_rng(8).normal(size=(12, 4))
    space = Space(ids(*range(12)), positions, np.full(12, 7.0), linkage=linkage)
    for n in (2, 3, 12):
        spread = space.spread(positions[:n], space.weights[:n])
        assert_allclose(spread**2, positions[:n].var(axis=0, ddof=1).sum())


@pytest.mark.parametrize("n", [2, 3, 10])
def test_spread_is_the_same_for_few_and_for_many(n: int) -> None:
    """Few points drawn from one cloud do not look tighter than many."""
    positions = np.random.default_rng(9).normal(size=(4000, n, 3))
    squares = [
        space.spread(space.positions, space.weights) ** 2
        for space in (Space(ids(*range(n)), rows, np.ones(n)) for rows in positions[: 8000 // n])
    ]
    assert_allclose(np.mean(squares), 3, rtol=0.06)


def test_incoherence_is_a_fraction_of_the_scale() -> None:
    positions = np.array([[0.0], [1.0], [10.0], [11.0]])
    space = Space(ids(0, 1, 2, 3), positions, np.ones(4))
    nodes = space.locate(tree_of([0, 1, 2, 3]))
    assert_allclose(nodes.incoherence(space.clients), 1)
    tight = nodes.incoherence(ids(0, 1))
    assert_allclose(tight, np.sqrt(0.5) / np.sqrt(positions.var(ddof=1)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_refuses_places_that_are_not_finite(value: float) -> None:
    positions = np.zeros((3, 2))
    positions[1, 0] = value
    with pytest.raises(TopologyError, match=r"^positions of clients \[7\] are not finite$"):
        Space(ids(5, 7, 9), positions, np.ones(3))


@pytest.mark.parametrize("shape", [(2, 4), (4, 4), (3,), (3, 2, 2), (0, 2)])
def test_refuses_other_than_one_row_per_client(shape: tuple[int, ...]) -> None:
    with pytest.raises(TopologyError) as error:
        Space(ids(0, 1, 2), np.zeros(shape), np.ones(3))
    wanted = "positions must be one row per client: 3 clients, positions of shape"
    assert str(error.value) == f"{wanted} {shape}"


@pytest.mark.parametrize("weights", [[1, 0, 1], [1, -1, 1], [1, np.nan, 1], [1, 1], [1] * 4, []])
def test_refuses_weights_that_are_not_above_zero(weights: list[float]) -> None:
    with pytest.raises(TopologyError, match=r"^every client needs a weight above zero$"):
        Space(ids(0, 1, 2), np.zeros((3, 2)), np.array(weights, dtype=np.float64))


@pytest.mark.parametrize("metric", METRICS)
def test_what_counts_as_rounding_goes_by_the_length_in_the_metric(metric: DistanceMetric) -> None:
    """Of 100 ones: 10 by the euclidean metric."""
    gap = np.zeros(100)
    gap[0] = 1e-11
    positions = np.stack([np.ones(100), np.ones(100) + gap, np.ones(100) + 10 * gap])
    if metric == "cosine":  # of length 1, so that nothing is as near as that but by rounding
        positions = np.stack([np.eye(100)[0], np.eye(100)[0] + gap, np.eye(100)[1]])
    far = np.full((1, 100), 1e9)  # the length of another makes no difference
    space = Space(ids(0, 1, 2, 3), np.concatenate([positions, far]), np.ones(4), metric)
    pairs = space.distances(space.positions, space.positions)
    assert pairs[0, 1] == 0.0
    assert pairs[0, 2] > 0


@pytest.mark.parametrize("linkage", ["centroid", "average"])
def test_no_two_directions_are_farther_apart_than_opposite_ones(linkage: Linkage) -> None:
    directions = np.random.default_rng(0).normal(size=(200, 7))
    space = Space(ids(*range(200)), directions, np.ones(200), "cosine", linkage)
    a, b = space.positions, -space.positions
    assert (1 - np.einsum("ij,ij->i", a, b)).max() > 2, "by rounding"
    assert space.distances(a, b).max() == 2
    assert space.distances(a, a).min() == 0


def test_variances_are_zero_unless_named() -> None:
    space = random_space(np.random.default_rng(4), 5, linkage="average")
    a, b = space.positions[[0, 1]], space.positions[[2, 3]]
    expected = np.sqrt(((a - b) ** 2).sum(axis=1))
    assert_allclose(np.diag(space.distances(a, b)), expected)
    assert_allclose(np.diag(space.distances(a, b, 3.0)), np.sqrt(expected**2 + 3))
    each = np.diag(space.distances(a, b, np.array([3.0, 2.0])))
    assert_allclose(each, np.sqrt(expected**2 + [3, 2]))


def test_siblings_as_near_as_each_other_come_in_their_order() -> None:
    """Even ones are at a distance of √2 from each other, as are odd ones; √3 between the two."""
    tree = tree_of([[2 * k, 2 * k + 1] for k in range(30)])
    corners = np.column_stack([np.eye(30), np.arange(30) % 2])
    space = Space(ids(*range(60)), np.repeat(corners, 2, axis=0), np.ones(60), linkage="average")
    pairs = [(a, b) for a, b, _ in space.sibling_pairs(tree)]
    assert len(pairs) == 30 * 29 // 2
    assert pairs == sorted(pairs, key=lambda pair: ((pair[0] + pair[1]) % 2, pair))


@pytest.mark.parametrize("metric", METRICS)
def test_squares_are_those_of_all_pairs(metric: DistanceMetric) -> None:
    """One minus the cosine is a square already."""
    space = random_space(np.random.default_rng(5), 9, metric)
    expected = cdist(space.positions, space.positions, metric)
    if metric == "euclidean":
        expected **= 2
    assert_allclose(space.squares, expected, atol=1e-12)
    assert not np.diag(space.squares).any()
    assert not random_space(np.random.default_rng(5), 1, metric).squares.any()


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_the_space_of_some_clients_is_that_of_their_rows(
    way: tuple[DistanceMetric, Linkage],
) -> None:
    space = random_space(np.random.default_rng(6), 9, *way)
    some = space.of(ids(7, 2, 4))
    fresh = Space(ids(7, 2, 4), space.positions[[7, 2, 4]], space.weights[[7, 2, 4]], *way)
    assert some.clients == fresh.clients
    assert_allclose(some.positions, fresh.positions)
    assert_allclose(some.weights, fresh.weights)
    assert_allclose(some.squares, fresh.squares, atol=1e-12)
    assert_allclose(some.scale, fresh.scale)
    assert (some.metric, some.linkage) == way
