"""Positions of nodes: a cluster is at the weighted mean of its clients."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from sofa_fl.topology.space import Space
from tests.topology.strategies import examples, ids, node, rows_of, tree_of, trees
from tests.topology.test_space import random_space

SEEDS = st.integers(0, 2**32 - 1)


@examples(60)
@given(SEEDS, st.integers(1, 12), st.data())
def test_a_cluster_is_the_weighted_mean_of_its_clients(
    seed: int, n: int, data: st.DataObject
) -> None:
    space = random_space(np.random.default_rng(seed), n)
    tree = data.draw(trees(space.clients, compact=False))
    nodes = space.locate(tree)
    for each in tree.parent:
        rows = list(tree.clients_of(each))
        if not rows:
            assert each not in rows_of(nodes), "a cluster without clients has no position"
            continue
        positions, weights = space.positions[rows], space.weights[rows]
        mean = np.average(positions, axis=0, weights=weights)
        squares = ((positions - mean) ** 2).sum(axis=1)
        row = rows_of(nodes)[each]
        assert_allclose(nodes.positions[row], mean, atol=1e-12)
        assert_allclose(nodes.weights[row], weights.sum())
        assert_allclose(nodes.variances[row], np.average(squares, weights=weights), atol=1e-12)


def test_by_cosine_a_cluster_is_the_mean_of_directions() -> None:
    space = Space(ids(0, 1), np.array([[5.0, 0], [0, 0.1]]), np.array([1.0, 3]), "cosine")
    assert_allclose(space.locate(tree_of([0, 1])).positions[0], [0.25, 0.75])


def test_a_client_that_is_not_in_the_space_has_no_position() -> None:
    """Nor has a cluster of such clients; what is known of others does not depend on them."""
    tree = tree_of([[0, 1], [2, 3], [4, 5]])
    space = Space(ids(4, 1, 5), np.array([[1.0], [2.0], [5.0]]), np.array([1.0, 1.0, 3.0]))
    nodes = space.locate(tree)
    assert set(rows_of(nodes)) == set(ids(6, 7, 1, 9, 4, 5))
    assert_allclose(nodes.positions[rows_of(nodes)[node(7)]], [2.0])
    assert_allclose(nodes.positions[rows_of(nodes)[node(9)]], [4.0])
    assert_allclose(nodes.positions[0], [(2 + 1 + 15) / 5])
    assert nodes.known(tree.children[node(7)]) == [1]
    assert nodes.known(tree.children[tree.root]) == [7, 9]
