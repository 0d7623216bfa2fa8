"""The arrays of a tree say what the tree says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.tree.tree_arrays import interval_sums
from tests.topology.strategies import examples, ids, node, tree_of, trees

SEEDS = st.integers(0, 2**32 - 1)


@examples(80)
@given(st.integers(1, 12), st.data())
def test_rows_are_the_nodes_of_the_tree(n: int, data: st.DataObject) -> None:
    tree = data.draw(trees(ids(*range(n)), compact=False))
    order = tree.arrays
    assert order.nodes.tolist() == list(tree.walk())
    for row, each in enumerate(order.nodes.tolist()):
        up = tree.parent[node(each)]
        assert (None if order.up[row] < 0 else order.nodes[order.up[row]]) == up
        below = list(tree.walk(node(each)))
        assert order.nodes[row : row + order.size[row]].tolist() == below
        assert tuple(order.nodes[order.children(row)]) == tree.children[node(each)]
        assert order.num_children[row] == len(tree.children[node(each)])
        depths = [len(tree.path(leaf)) - len(tree.path(node(each))) for leaf in below]
        assert order.level[row] == tree.level[node(each)] == max(depths)
        assert order.is_client[row] == (each in tree.members)
        clients = order.clients_before[row + order.size[row]] - order.clients_before[row]
        assert clients == len(tree.clients_of(node(each)))


def test_a_node_is_told_by_its_leaves() -> None:
    first, second = tree_of([[0, 1], [2, 3], 4]), tree_of([4, [3, 2], [[1, 0], [5, 6]]])
    numbers = [
        {
            frozenset(tree.clients_of(node(each))): int(number)
            for each, number in zip(tree.arrays.nodes.tolist(), tree.arrays.below)
        }
        for tree in (first, second)
    ]
    shared = numbers[0].keys() & numbers[1].keys()
    assert {frozenset({0, 1}), frozenset({2, 3}), frozenset({4})} <= shared
    assert all(numbers[0][key] == numbers[1][key] for key in shared)
    everything = numbers[0] | numbers[1]
    assert len(set(everything.values())) == len(everything)


@examples(60)
@given(SEEDS, st.integers(1, 40), st.sampled_from([(), (3,)]))
def test_interval_sums_are_sums_of_intervals(seed: int, n: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, *shape))
    ends = np.sort(rng.integers(0, n + 1, size=(30, 2)), axis=1)
    sums = interval_sums(values, ends[:, 0], ends[:, 1])
    expected = [values[low:high].sum(axis=0) for low, high in ends]
    np.testing.assert_allclose(sums, expected, atol=1e-13)


def test_a_small_sum_beside_large_ones_keeps_its_digits() -> None:
    """A difference of running sums would have lost them."""
    values = np.array([1e16, 1e-3, 1e-3, 1e16])
    assert interval_sums(values, np.array([1]), np.array([3])) == [2e-3]
