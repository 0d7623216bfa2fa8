"""The arrays of a tree say what the tree says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.topology.strategies import examples, ids, node, trees


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
        assert order.nodes[row : row + len(below)].tolist() == below
        assert tuple(order.nodes[order.children(row)]) == tree.children[node(each)]
        assert order.num_children[row] == len(tree.children[node(each)])
        depths = [len(tree.path(leaf)) - len(tree.path(node(each))) for leaf in below]
        assert order.level[row] == tree.level[node(each)] == max(depths)
        assert order.is_client[row] == (each in tree.members)
