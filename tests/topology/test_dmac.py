"""DMAC: the classical tree at increase 1, wider ones above, and an end in every case."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.dmac import dmac
from sofa_fl.topology.space import DistanceMetric, Floats, Linkage
from sofa_fl.topology.tree import Tree
from tests.topology.strategies import (
    WAYS,
    client_sets,
    examples,
    generic_places,
    ids,
    nested,
    random_names,
    renamed_space,
    space_of,
    tied_places,
    tree_of,
)

SEEDS = st.integers(0, 2**32 - 1)


def build(
    positions: ArrayLike,
    increase: float | None = 1.1,
    weights: ArrayLike | None = None,
    metric: DistanceMetric = "euclidean",
    linkage: Linkage = "centroid",
) -> Tree:
    return dmac(space_of(positions, weights, metric, linkage), DmacConfig(increase=increase))


def scipy_sets(links: Floats) -> set[frozenset[int]]:
    """The points of every cluster in SciPy's encoding of a tree."""
    n = len(links) + 1
    sets: list[frozenset[int]] = [frozenset([i]) for i in range(n)]
    for first, second in links[:, :2].astype(int):
        sets.append(sets[first] | sets[second])
    return set(sets[n:])


@examples(80)
@given(SEEDS, st.integers(2, 40), st.integers(1, 6), st.booleans())
def test_increase_one_is_classical_centroid_clustering(
    seed: int, n: int, dimensions: int, clustered: bool
) -> None:
    positions = generic_places(np.random.default_rng(seed), n, dimensions, clustered)
    tree = build(positions, increase=1)
    assert client_sets(tree) == scipy_sets(linkage(positions, method="centroid"))


@examples(60)
@given(SEEDS, st.integers(2, 40), st.integers(1, 6), st.booleans())
def test_average_linkage_is_classical_over_squared_distances(
    seed: int, n: int, dimensions: int, clustered: bool
) -> None:
    """The root mean square over all pairs orders clusters as the mean of the squares does."""
    positions = generic_places(np.random.default_rng(seed), n, dimensions, clustered)
    tree = build(positions, increase=1, linkage="average")
    assert client_sets(tree) == scipy_sets(linkage(pdist(positions) ** 2, method="average"))


@examples(60)
@given(SEEDS, st.integers(2, 30), st.integers(2, 6), st.booleans())
def test_average_linkage_by_cosine_is_classical(
    seed: int, n: int, dimensions: int, clustered: bool
) -> None:
    positions = generic_places(np.random.default_rng(seed), n, dimensions, clustered)
    classical = linkage(pdist(positions, "cosine"), method="average")
    tree = build(positions, increase=1, metric="cosine", linkage="average")
    if np.diff(np.sort(classical[:, 2])).min(initial=1.0) > 1e-9:  # but for ties by rounding
        assert client_sets(tree) == scipy_sets(classical)


def test_a_weight_counts_as_that_many_clients() -> None:
    """0 and 3 meet first; their place, by weight, decides whether -4 or 6 comes next."""
    positions = [0.0, 3.0, -4.0, 6.5]
    assert nested(build(positions, 1, [9, 1, 1, 1])) == nested(tree_of([[[0, 1], 2], 3]))
    assert nested(build(positions, 1, [1, 9, 1, 1])) == nested(tree_of([[[0, 1], 3], 2]))


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
class TestEnds:
    """Whatever the distances are."""

    def test_one_client(self, metric: DistanceMetric, linkage: Linkage) -> None:
        tree = build([[1.0, 2.0]], metric=metric, linkage=linkage)
        assert tree == tree_of(0)

    def test_two_clients(self, metric: DistanceMetric, linkage: Linkage) -> None:
        tree = build([[1.0, 2.0], [5.0, -3.0]], metric=metric, linkage=linkage)
        assert tree == tree_of([0, 1])

    @pytest.mark.parametrize("increase", [None, 1, 1.1, 100])
    @pytest.mark.parametrize("place", [[0.0, 0.3], [0.1, -0.7], [1e7, 3.0]])
    def test_all_places_equal(
        self, metric: DistanceMetric, linkage: Linkage, place: list[float], increase: float | None
    ) -> None:
        weights = [3, 1, 7, 1, 1, 9, 2]
        tree = build([place] * 7, increase, weights, metric, linkage)
        assert nested(tree) == frozenset(range(7))

    @pytest.mark.parametrize("increase", [None, 1])
    def test_all_distances_equal(
        self, metric: DistanceMetric, linkage: Linkage, increase: float | None
    ) -> None:
        tree = build(np.eye(6), increase, metric=metric, linkage=linkage)
        assert nested(tree) == frozenset(range(6))

    @pytest.mark.parametrize("increase", [None, 1])
    def test_places_at_zero(
        self, metric: DistanceMetric, linkage: Linkage, increase: float | None
    ) -> None:
        tree = build(np.zeros((5, 2)), increase, metric=metric, linkage=linkage)
        assert nested(tree) == frozenset(range(5))

    @pytest.mark.parametrize("seed", range(12))
    def test_ties_and_duplicates(self, metric: DistanceMetric, linkage: Linkage, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for increase in (None, 1, 1.1, 3):
            positions = tied_places(rng, int(rng.integers(2, 16)), int(rng.integers(1, 4)))
            tree = build(positions, increase, metric=metric, linkage=linkage)
            assert tree.is_compact
            assert len(tree.clients) == len(positions)


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_a_huge_increase_gives_a_flat_tree(metric: DistanceMetric, linkage: Linkage) -> None:
    positions = np.random.default_rng(0).normal(size=(30, 3))
    tree = build(positions, 1e9, metric=metric, linkage=linkage)
    assert nested(tree) == frozenset(range(30))


@examples(60)
@given(
    SEEDS,
    st.integers(1, 25),
    st.integers(2, 5),
    st.sampled_from([None, 1, 1.05, 1.1, 1.5, 4]),
    st.sampled_from(WAYS),
    st.booleans(),
)
def test_is_compact_and_has_every_client(
    seed: int,
    n: int,
    dimensions: int,
    increase: float | None,
    way: tuple[DistanceMetric, Linkage],
    even: bool,
) -> None:
    rng = np.random.default_rng(seed)
    positions = generic_places(rng, n, dimensions, bool(seed % 2), finest=0.1)
    weights = np.ones(n) if even else rng.integers(1, 99, n)
    tree = build(positions, increase, weights, *way)
    assert tree.is_compact
    assert tree.clients == ids(*range(n))
    assert set(tree.clusters) <= set(range(n, tree.next_id)), "ids follow the clients'"


def test_a_larger_increase_gives_a_wider_tree() -> None:
    positions = np.cumsum([0, 1, 1.04, 1.08, 1.12, 1.16, 1.2, 1.24])  # steps that grow
    depths = [build(positions, increase).depth for increase in (1, 1.1, 1.3)]
    assert depths == sorted(depths, reverse=True)
    assert depths[0] > depths[1] > depths[2] == 1
    widths = [
        max(len(below) for below in build(positions, increase).children.values())
        for increase in (1, 1.1, 1.3)
    ]
    assert widths[0] == 2 < widths[1] < widths[2] == 8


def nested_blobs(rng: np.random.Generator) -> tuple[Floats, list[list[list[int]]]]:
    """Three groups of three parts of four clients, a factor of ten between the levels."""
    groups = [[[12 * g + 4 * p + c for c in range(4)] for p in range(3)] for g in range(3)]
    positions = np.zeros((36, 3 + 9 + 36))
    for g, p, c in itertools.product(range(3), range(3), range(4)):
        client = groups[g][p][c]
        positions[client, [g, 3 + 3 * g + p, 12 + client]] = [100, 10, 1]
    return positions + rng.normal(size=positions.shape) * 1e-3, groups


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("increase", [None, 1.15])
@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_finds_a_nested_structure(
    metric: DistanceMetric, linkage: Linkage, increase: float | None, seed: int
) -> None:
    positions, groups = nested_blobs(np.random.default_rng(seed))
    tree = build(positions, increase, metric=metric, linkage=linkage)
    assert nested(tree) == nested(tree_of(groups))


@pytest.mark.parametrize("increase", [None, 1, 1.1, 1.5])
@pytest.mark.parametrize("seed", range(5))
def test_keeps_well_separated_blobs_together(increase: float | None, seed: int) -> None:
    """Whatever happens inside them: in low dimensions the clouds have structure of their own."""
    rng = np.random.default_rng(seed)
    far = np.array([[0, 0], [0, 1e4], [1e4, 0]])
    near = np.array([[0, 0], [0, 100], [100, 0]])
    positions = (far[:, None, None] + near[:, None] + rng.normal(size=(3, 3, 4, 2))).reshape(36, 2)
    sets = client_sets(build(positions, increase))
    for first in range(0, 36, 12):
        assert frozenset(range(first, first + 12)) in sets
        for part in range(first, first + 12, 4):
            assert frozenset(range(part, part + 4)) in sets


@examples(60)
@given(
    SEEDS,
    st.integers(1, 20),
    st.integers(2, 5),
    st.sampled_from([None, 1, 1.1, 1.5]),
    st.sampled_from(WAYS),
    st.booleans(),
)
def test_relabelling_the_clients_relabels_the_tree(
    seed: int,
    n: int,
    dimensions: int,
    increase: float | None,
    way: tuple[DistanceMetric, Linkage],
    even: bool,
) -> None:
    rng = np.random.default_rng(seed)
    positions = generic_places(rng, n, dimensions, bool(seed % 2), finest=0.1)
    space = space_of(positions, np.ones(n) if even else rng.integers(1, 99, n), *way)
    rename = random_names(space.clients, rng)
    again = renamed_space(space, rename, [rename[space.clients[i]] for i in rng.permutation(n)])
    config = DmacConfig(increase=increase)
    assert nested(dmac(again, config)) == nested(dmac(space, config), rename)


@examples(60)
@given(
    SEEDS,
    st.integers(1, 20),
    st.integers(2, 5),
    st.sampled_from([None, 1, 1.1, 1.5]),
    st.sampled_from(WAYS),
)
def test_a_thousand_times_the_places_is_the_same_tree(
    seed: int, n: int, dimensions: int, increase: float | None, way: tuple[DistanceMetric, Linkage]
) -> None:
    rng = np.random.default_rng(seed)
    positions = generic_places(rng, n, dimensions, bool(seed % 2), finest=0.1)
    assert build(1000 * positions, increase, None, *way) == build(positions, increase, None, *way)
