"""A draft goes through edits as if a tree were made anew by each, to the last detail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.errors import TopologyError
from sofa_fl.topology.edits import Graft, Merge, MutableTree
from sofa_fl.topology.tree import NodeId, Tree
from tests.topology.strategies import examples, ids, node, tree_of, trees
from tests.topology.test_edits import edits_of


class Remade(MutableTree):
    """A draft that is made of a checked tree at every change."""

    def reparent(
        self,
        moves: Mapping[NodeId, NodeId | None],
        drop: Sequence[NodeId] = (),
        join: Sequence[NodeId] = (),
    ) -> None:
        parent = {n: up for n, up in {**self.parent, **moves}.items() if n not in drop}
        clients = tuple(c for c in (*self.members, *join) if c not in drop)
        super().__init__(Tree(parent, clients, max(self.next_id, 1 + max(parent))))


@examples(100)
@given(st.data(), st.integers(2, 9), st.integers(1, 12))
def test_a_draft_changes_as_a_tree_does(data: st.DataObject, n: int, num_edits: int) -> None:
    tree = data.draw(trees(ids(*range(n)), compact=False))
    draft, remade = MutableTree(tree), Remade(tree)
    for _ in range(num_edits):
        edit = data.draw(edits_of(tree))
        edit.apply(draft)
        edit.apply(remade)
        tree = remade.done()
        assert list(draft.parent.items()) == list(tree.parent.items())
        assert {up: set(draft.children[up]) for up in draft.parent} == {
            up: set(below) for up, below in tree.children.items()
        }
        assert draft.next_id == tree.next_id
        assert tuple(draft.members) == tree.clients
        assert set(draft.walk(tree.root)) == set(tree.walk())
    assert draft.done() == tree


def test_the_tree_it_was_made_of_stays() -> None:
    tree = tree_of([[0, 1], [2, 3]])
    before = dict(tree.parent)
    first, second = (child for child in tree.children[tree.root])
    Merge((first, second), node(tree.next_id)).apply(MutableTree(tree))
    assert tree.parent == before


def test_what_is_no_tree_is_noticed_at_the_end() -> None:
    tree = tree_of([[0, 1], 2])
    draft = MutableTree(tree)
    Graft(node(0), node(2)).apply(draft)
    with pytest.raises(TopologyError, match="have children; only clusters may"):
        draft.done()


def test_clients_and_clusters_are_dropped_in_one() -> None:
    tree = tree_of([[0, 1], [2, 3]])
    first = tree.parent[node(0)]
    assert first is not None
    moves, drop = {node(1): tree.root}, [node(0), first]
    draft, remade = MutableTree(tree), Remade(tree)
    draft.reparent(moves, drop)
    remade.reparent(moves, drop)
    assert draft.done() == remade.done()
    assert set(draft.children) <= set(draft.parent), "nothing is kept of those that are gone"


def test_without_moves_no_id_is_used() -> None:
    alone = tree_of(0)
    draft = MutableTree(alone)
    draft.reparent({})
    assert draft.next_id == alone.next_id == 1
