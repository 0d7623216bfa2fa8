"""The nodes that DMAC joins: what is near, what is joined, and what ties do."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from sofa_fl.topology.clustering.dense import DenseNodes, is_dense
from sofa_fl.topology.clustering.dmac import dendrogram
from sofa_fl.topology.clustering.fast import FastNeighbors
from sofa_fl.topology.geometry.space import Neighbors, linked
from tests.topology.strategies import space_of

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


def nearest_of(nodes: Neighbors) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for a, b in zip(*(rows.tolist() for rows in nodes.nearest())):
        found.setdefault(a, set()).add(b)
    return found


@pytest.mark.parametrize("kind", BOTH)
def test_all_that_are_as_near_are_nearest(kind: type[Neighbors]) -> None:
    assert nearest_of(kind(space_of([0, 1, 2, 5]))) == {0: {1}, 1: {0, 2}, 2: {1}, 3: {2}}
    nodes = kind(space_of([0, 1, 1 + 1e-12, 9, 11.0]))
    assert nearest_of(nodes) == {0: {1, 2}, 1: {2}, 2: {1}, 3: {4}, 4: {3}}
    nodes.join([np.array([1, 2])])
    assert nearest_of(nodes) == {0: {5}, 3: {4}, 4: {3}, 5: {0}}
    nodes.join([np.array([0, 5])])
    assert nearest_of(nodes) == {6: {3}, 3: {4}, 4: {3}}


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


def groups_of(kind: type[Neighbors], nodes: list[int], nearest: list[int]) -> list[list[int]]:
    """The groups of nodes that are each other's nearest, given the nearest of each."""
    made = kind(space_of(np.arange(1.0 + max(nodes))))
    with patch.object(made, "nearest", return_value=(np.array(nodes), np.array(nearest))):
        return [group.tolist() for group in made.mutual()]


@pytest.mark.parametrize("kind", BOTH)
def test_mutual_is_both_ways(kind: type[Neighbors]) -> None:
    """1's nearest is 2, but 2's is 3; 5 and 6 are each other's, 7 is nobody's."""
    assert groups_of(kind, [1, 2, 3, 5, 6, 7], [2, 3, 2, 6, 5, 6]) == [[2, 3], [5, 6]]


@pytest.mark.parametrize("kind", [*BOTH, DenseNodes])
def test_joins_come_in_the_order_of_their_first_members(
    kind: type[Neighbors] | type[DenseNodes],
) -> None:
    """A join takes the rank of its first member: [0, 1] and [2, 3] come before 4 and [5, 6]."""
    joins = dendrogram(kind(space_of([0, 0.1, 1, 1.1, 50, 50.6, 50.7], linkage="average")))
    assert joins == [[0, 1], [2, 3], [5, 6], [7, 8], [4, 9], [10, 11]]


@pytest.mark.parametrize("kind", [*BOTH, DenseNodes])
def test_a_join_stands_where_its_best_member_does(
    kind: type[Neighbors] | type[DenseNodes],
) -> None:
    """[5, 8] comes before [2, 9], since 8 is [0, 1]; but its own rank is that of 5."""
    joins = dendrogram(kind(space_of([0, 0.1, 51, 50, 50.1, 1, 5, 55], linkage="average")))
    assert joins == [[0, 1], [3, 4], [5, 8], [2, 9], [7, 11], [6, 10], [12, 13]]


@pytest.mark.parametrize("kind", BOTH)
@given(data=st.data())
def test_pairs_without_ties_are_each_others_nearest(
    kind: type[Neighbors], data: st.DataObject
) -> None:
    num = data.draw(st.integers(2, 12))
    others = st.integers(1, num - 1)  # how far on the nearest is, so that no node is its own
    nodes = data.draw(st.permutations(range(num)))
    of = {node: (node + data.draw(others)) % num for node in nodes}
    expected = [[node, of[node]] for node in range(num) if of[of[node]] == node and node < of[node]]
    assume(expected)  # the two nearest of all are each other's
    assert groups_of(kind, list(of), list(of.values())) == expected


def test_all_pairs_are_kept_of_few_clients_by_average_linkage() -> None:
    assert is_dense(space_of(np.zeros((512, 2)), linkage="average"))
    assert not is_dense(space_of(np.zeros((513, 2)), linkage="average"))
    assert not is_dense(space_of(np.zeros((5, 2)), linkage="centroid"))
    assert not is_dense(space_of([0.0, 1e200], linkage="average"))  # its square is infinite


def test_dense_nodes_join_as_others_do() -> None:
    """By weights, with ties, and once there are fewer nodes than free slots."""
    rng = np.random.default_rng(3)
    positions = np.concatenate([rng.normal(size=(20, 6)), np.eye(6), np.zeros((3, 6))])
    space = space_of(positions, rng.integers(1, 60, 29), linkage="average")
    plain, dense = Neighbors(space), DenseNodes(space)
    while len(plain.alive) > 1:
        groups = sorted(plain.mutual(), key=lambda rows: int(rows[0]))
        found = sorted(dense.mutual(), key=lambda rows: int(rows[0]))
        assert [rows.tolist() for rows in found] == [rows.tolist() for rows in groups]
        plain.join(groups)
        dense.join(groups)
        assert (dense.size, sorted(dense.alive)) == (plain.size, plain.alive.tolist())
