"""The arrays of a tree say what the tree says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.clustering.shape import form
from sofa_fl.topology.tree import Tree
from tests.topology.strategies import Drawn, examples, ids, node, tree_of, trees


@examples(80)
@given(st.integers(1, 12), st.data())
def test_rows_are_the_nodes_of_the_tree(n: int, data: st.DataObject) -> None:
    tree = data.draw(trees(ids(*range(n)), compact=False))
    order = tree.arrays
    assert order.nodes.tolist() == list(tree.walk())
    for row, each in enumerate(order.nodes.tolist()):
        up = tree.parent[node(each)]
        assert (None if order.parents[row] < 0 else order.nodes[order.parents[row]]) == up
        below = list(tree.walk(node(each)))
        assert order.nodes[row : row + order.sizes[row]].tolist() == below
        assert tuple(order.nodes[order.children(row)]) == tree.children[node(each)]
        assert order.num_children[row] == len(tree.children[node(each)])
        depths = [len(tree.path(leaf)) - len(tree.path(node(each))) for leaf in below]
        assert order.level[row] == tree.level[node(each)] == max(depths)
        assert order.is_client[row] == (each in tree.members)
        assert tuple(order.nodes[order.clients(row)]) == tree.clients_of(node(each))


def test_the_form_of_a_tree_knows_clients_and_not_clusters() -> None:
    assert form(tree_of([[0, 1], [2, 3]])) == form(tree_of([[3, 2], [1, 0]]))
    different: list[Drawn] = [
        0,
        [0],
        [0, 1],
        [[0, 1]],
        [[0], [1]],
        [[0], 1],
        [0, [1]],
        [0, 1, 2],
        [[0, 1], 2],
        [[0, 2], 1],
        [0, [1, 2]],
        [[[0, 1]], 2],
    ]
    assert len({form(tree_of(drawn)) for drawn in different}) == len(different)


def test_the_form_counts_clusters_without_clients() -> None:
    def with_empty(*empty: int) -> Tree:
        links = {node(0): node(9), node(1): node(9)} | {node(n): node(9) for n in empty}
        return Tree({**links, node(9): None}, ids(0, 1), 10)

    assert form(with_empty(2)) == form(with_empty(3))
    assert len({form(with_empty()), form(with_empty(2)), form(with_empty(2, 3))}) == 3


def test_the_form_is_a_number_that_stays() -> None:
    """It decides between trees that are equally tight, so another one would change a run."""
    assert form(tree_of([[0, 1], [2, [3, 4]]])) == 13772864071165928168
