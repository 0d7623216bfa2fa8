"""The nodes that DMAC joins: what is near, what is joined, and what ties do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse.csgraph import connected_components

from sofa_fl.topology.clustering.dmac import dendrogram
from sofa_fl.topology.clustering.fast.nearest import FastNeighbors
from sofa_fl.topology.space import Linkage, Neighbors, linked
from tests.topology.strategies import space_of

LINKAGES: tuple[Linkage, ...] = ("centroid", "average")
BOTH = [Neighbors, FastNeighbors]


@pytest.mark.parametrize("kind", BOTH)
def test_a_join_is_the_weighted_mean_of_its_members(kind: type[Neighbors]) -> None:
    rng = np.random.default_rng(0)
    space = space_of(rng.normal(size=(6, 2)), [1, 2, 3, 4, 5, 6], linkage="average")
    nodes = kind(space)
    assert nodes.join([np.array([0, 2]), np.array([1, 3, 4])]).tolist() == [6, 7]
    assert nodes.alive.tolist() == [5, 6, 7]
    assert nodes.join([np.array([6, 7])]).tolist() == [8]
    assert (nodes.alive.tolist(), nodes.size) == ([5, 8], 9)
    positions, weights = space.positions[:5], space.weights[:5]
    mean = np.average(positions, axis=0, weights=weights)
    squares = ((positions - mean) ** 2).sum(axis=1)
    assert_allclose(nodes.positions[8], mean)
    assert nodes.weights[8] == 15
    assert_allclose(nodes.variances[8], np.average(squares, weights=weights))
    distances = nodes.distances(nodes.alive, nodes.alive)
    assert np.isinf(np.diag(distances)).all()
    pairs = ((space.positions[5] - positions) ** 2).sum(axis=1)
    assert_allclose(distances[0, 1] ** 2, np.average(pairs, weights=weights))


def mutual_of(nodes: Neighbors) -> list[list[int]]:
    return [group.tolist() for group in nodes.mutual()]


@pytest.mark.parametrize("kind", BOTH)
def test_mutual_is_both_ways(kind: type[Neighbors]) -> None:
    """3's nearest is 2, but 2's is 1."""
    nodes = kind(space_of([50, 0, 1, 3, 40, 51]))
    assert mutual_of(nodes) == [[0, 5], [1, 2]]
    nodes.join([np.array([1, 2])])
    assert mutual_of(nodes) == [[0, 5], [3, 6]]
    nodes.join([np.array([0, 5]), np.array([3, 6])])
    assert mutual_of(nodes) == [[4, 7]]


@pytest.mark.parametrize("kind", BOTH)
def test_all_that_are_as_near_are_one_group(kind: type[Neighbors]) -> None:
    assert mutual_of(kind(space_of([0, 1, 2, 5]))) == [[0, 1, 2]]
    assert mutual_of(kind(space_of([5, 0, 5, 1, 5, 9]))) == [[0, 2, 4], [1, 3]]
    nodes = kind(space_of([0, 1, 1 + 1e-12, 9, 11.0]))
    assert mutual_of(nodes) == [[1, 2], [3, 4]]
    nodes.join([np.array([1, 2])])
    assert mutual_of(nodes) == [[0, 5], [3, 4]]


@pytest.mark.parametrize("kind", BOTH)
@given(data=st.data())
def test_mutual_by_all_pairs(kind: type[Neighbors], data: st.DataObject) -> None:
    """On a grid, where many are as near, and joined until one is left."""
    places = data.draw(st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=2, max_size=12))
    linkage = data.draw(st.sampled_from(LINKAGES))
    nodes = kind(space_of(np.array(places, dtype=np.float64), linkage=linkage))
    while len(nodes.alive) > 1:
        distances = nodes.distances(nodes.alive, nodes.alive)
        near = distances <= distances.min(axis=1)[:, None] * (1 + 1e-9)
        num, group_of = connected_components(near & near.T, directed=False)
        groups = [nodes.alive[group_of == group].tolist() for group in range(num)]
        groups = [group for group in groups if len(group) > 1]
        assert mutual_of(nodes) == groups
        nodes.join([np.array(group) for group in groups])


@pytest.mark.parametrize("kind", BOTH)
def test_within_has_all_that_are_near_enough(kind: type[Neighbors]) -> None:
    nodes = kind(space_of([0, 1, 3, 7, 7.5, 20]))
    assert set(nodes.within(1.0).tolist()) >= {3, 4}
    assert set(nodes.within(2.0).tolist()) >= {0, 1, 3, 4}
    assert set(nodes.within(100).tolist()) == {0, 1, 2, 3, 4, 5}


def test_links_make_groups() -> None:
    groups = linked(np.array([7, 4, 9, 5]), np.array([8, 9, 2, 5]))
    assert [group.tolist() for group in groups] == [[2, 4, 9], [5], [7, 8]]
    assert [group.tolist() for group in linked(np.array([3]), np.array([6]))] == [[3, 6]]
    even_and_odd = linked(np.arange(60), np.arange(60) + 2)
    assert [group.tolist() for group in even_and_odd] == [[*range(0, 62, 2)], [*range(1, 62, 2)]]


@pytest.mark.parametrize("kind", BOTH)
def test_joins_come_in_the_order_of_their_first_members(kind: type[Neighbors]) -> None:
    """A join takes the rank of its first member: [0, 1] and [2, 3] come before 4 and [5, 6]."""
    joins = dendrogram(kind(space_of([0, 0.1, 1, 1.1, 50, 50.6, 50.7], linkage="average")))
    assert joins == [[0, 1], [2, 3], [5, 6], [7, 8], [4, 9], [10, 11]]


@pytest.mark.parametrize("kind", BOTH)
def test_a_join_stands_where_its_best_member_does(kind: type[Neighbors]) -> None:
    """[5, 8] comes before [2, 9], since 8 is [0, 1]; but its own rank is that of 5."""
    joins = dendrogram(kind(space_of([0, 0.1, 51, 50, 50.1, 1, 5, 55], linkage="average")))
    assert joins == [[0, 1], [3, 4], [5, 8], [2, 9], [7, 11], [6, 10], [12, 13]]
