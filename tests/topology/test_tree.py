"""The tree: what it refuses, and what it says about itself."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.errors import SofaError, TopologyError
from sofa_fl.topology.tree import NodeId, Tree, flat_tree, value_at_level
from tests.topology.strategies import examples, ids, node, tree_of, trees

DEEP = 10_000


def build(parent: dict[int, int | None], clients: tuple[int, ...], next_id: int = 100) -> Tree:
    links = {node(at): None if up is None else node(up) for at, up in parent.items()}
    return Tree(links, ids(*clients), next_id)


@pytest.mark.parametrize(
    ("parent", "clients", "message"),
    [
        ({}, (), "exactly one root"),
        ({0: 1, 1: 0}, (0,), "exactly one root"),
        ({0: None, 1: None}, (0, 1), "exactly one root"),
        ({0: 7, 1: None}, (0,), "parents .7. are not in the tree"),
        ({0: 1, 1: None}, (0, 5, 3), "clients .3, 5. are not in the tree"),
        ({0: 1, 1: None, 2: 3, 3: 2}, (0,), "nodes .2, 3. do not hang from root 1"),
        ({0: 1, 1: None, 2: 2}, (0,), "nodes .2. do not hang from root 1"),
        ({0: 1, 1: None, 2: 0}, (0, 2), "clients .0. have children"),
        ({0: None, 1: 0}, (0, 1), "clients .0. have children"),
        ({1: None}, (), "needs a client"),
        ({0: 1, 1: None}, (0, 0), "each once"),
    ],
)
def test_refuses_what_is_no_tree(
    parent: dict[int, int | None], clients: tuple[int, ...], message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        build(parent, clients)


@pytest.mark.parametrize("next_id", [-1, 0, 4])
def test_refuses_a_next_id_that_is_in_use(next_id: int) -> None:
    with pytest.raises(TopologyError, match=f"next_id {next_id} must be above id 4"):
        build({0: 4, 4: None}, (0,), next_id)


def test_the_error_is_one_a_user_can_be_shown() -> None:
    assert issubclass(TopologyError, SofaError)
    assert issubclass(TopologyError, ValueError)


def test_a_tree_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        tree_of([0, 1]).next_id = 0  # type: ignore[misc]


@pytest.fixture
def tree() -> Tree:
    """Root 6 over cluster 7, with client 2 and cluster 8, and client 5.

    6 ── 7 ── 0, 1, 8 ── 2, 3, 4
      └─ 5
    """
    return tree_of([[0, 1, [2, 3, 4]], 5])


def test_reads_as_drawn(tree: Tree) -> None:
    assert tree.root == 6
    assert tree.clients == ids(0, 1, 2, 3, 4, 5)
    assert tree.members == frozenset(tree.clients)
    assert tree.children[node(6)] == ids(7, 5)
    assert tree.children[node(7)] == ids(0, 1, 8)
    assert tree.children[node(0)] == ()
    assert list(tree.walk()) == list(ids(6, 7, 0, 1, 8, 2, 3, 4, 5))
    assert list(tree.walk(node(8))) == list(ids(8, 2, 3, 4))
    assert list(tree.walk(node(5))) == list(ids(5))


def test_clusters_come_parents_first(tree: Tree) -> None:
    assert tree.clusters == ids(6, 7, 8)


def test_path_goes_from_coarse_to_fine(tree: Tree) -> None:
    assert tree.path(node(3)) == ids(6, 7, 8, 3)
    assert tree.path(node(5)) == ids(6, 5)
    assert tree.path(node(7)) == ids(6, 7)
    assert tree.path(node(6)) == ids(6)


def test_siblings_share_a_parent(tree: Tree) -> None:
    assert tree.siblings(node(0)) == ids(1, 8)
    assert tree.siblings(node(8)) == ids(0, 1)
    assert tree.siblings(node(5)) == ids(7)
    assert tree.siblings(node(6)) == ()


def test_a_cluster_is_one_above_its_highest_child(tree: Tree) -> None:
    assert [tree.level[node(n)] for n in range(9)] == [0, 0, 0, 0, 0, 0, 3, 2, 1]
    assert tree.depth == 3


def test_clients_of_are_all_below(tree: Tree) -> None:
    assert tree.clients_of(node(6)) == ids(0, 1, 2, 3, 4, 5)
    assert tree.clients_of(node(7)) == ids(0, 1, 2, 3, 4)
    assert tree.clients_of(node(8)) == ids(2, 3, 4)
    assert tree.clients_of(node(5)) == ids(5)


def test_a_cluster_without_clients_is_a_cluster_still() -> None:
    tree = build({0: 3, 1: 3, 2: 3, 3: None}, (0, 1))
    assert tree.clusters == ids(3, 2)
    assert tree.clients_of(node(2)) == ()
    assert not tree.is_compact


@pytest.mark.parametrize(
    ("drawn", "compact"),
    [(0, True), ([0, 1], True), ([[0, 1], 2], True), ([[0], 1], False), ([0], False)],
)
def test_compact_is_two_children_or_more(drawn: int | list[int | list[int]], compact: bool) -> None:
    assert tree_of(drawn).is_compact is compact


def test_reparent_moves(tree: Tree) -> None:
    moved = tree.reparent({node(2): node(6), node(8): node(7)})
    assert moved.path(node(2)) == ids(6, 2)
    assert moved.path(node(8)) == ids(6, 7, 8)
    assert moved.clients == tree.clients
    assert moved.next_id == tree.next_id == 9
    assert tree.clusters == ids(6, 7, 8), "the tree before is as it was"


def test_reparent_makes_no_room_for_an_id_of_the_past(tree: Tree) -> None:
    grown = tree.reparent({node(20): node(6)})
    assert grown.next_id == 21
    assert grown.reparent({}).next_id == 21


def test_reparent_checks_what_it_makes(tree: Tree) -> None:
    with pytest.raises(TopologyError, match="have children"):
        tree.reparent({node(0): node(1)})


def test_a_very_deep_tree_needs_no_recursion() -> None:
    chain: dict[NodeId, NodeId | None] = {node(1): None}
    chain |= {node(n + 1): node(n) for n in range(1, DEEP)}
    tree = Tree({**chain, node(0): node(DEEP)}, ids(0), DEEP + 1)
    assert list(tree.walk()) == list(ids(*range(1, DEEP + 1), 0))
    assert tree.depth == tree.level[node(1)] == DEEP
    assert tree.level[node(DEEP)] == 1
    assert len(tree.path(node(0))) == DEEP + 1
    assert tree.clients_of(node(1)) == ids(0)
    assert tree.clusters == ids(*range(1, DEEP + 1))
    assert not tree.is_compact


def test_flat_tree_is_one_cluster_over_all() -> None:
    tree = flat_tree(ids(4, 2, 9))
    assert tree.root == 10
    assert tree.children[tree.root] == tree.clients == ids(4, 2, 9)
    assert tree.next_id == 11
    assert tree.depth == 1
    assert tree.is_compact


def test_one_client_is_its_own_root() -> None:
    tree = flat_tree(ids(3))
    assert tree.root == 3
    assert tree.next_id == 4
    assert tree.clusters == ()
    assert tree.depth == 0
    assert tree.path(node(3)) == ids(3)
    assert tree.siblings(node(3)) == ()
    assert tree.clients_of(node(3)) == ids(3)
    assert tree.is_compact


def test_a_flat_tree_of_nobody_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"^a tree needs at least one client, got none$"):
        flat_tree([])


def test_ids_below_the_first_are_left_for_clients() -> None:
    assert flat_tree(ids(4, 2), 9).root == 9
    assert flat_tree(ids(4, 2), 3).root == 5
    assert flat_tree(ids(0), 9).next_id == 9
    assert flat_tree(ids(0)).next_id == 1
    assert flat_tree(ids(-2, -1)).root == 0


@examples(60)
@given(st.data(), st.integers(1, 12), st.booleans())
def test_all_views_agree(data: st.DataObject, n: int, compact: bool) -> None:
    tree = data.draw(trees(ids(*range(n)), compact=compact))
    order = list(tree.walk())
    assert sorted(order) == sorted(tree.parent)
    for each in order:
        path = tree.path(each)
        assert path[0] == tree.root
        assert path[-1] == each
        assert all(down in tree.children[up] for up, down in itertools.pairwise(path))
        assert [order.index(step) for step in path] == sorted(order.index(step) for step in path)
        assert set(tree.clients_of(each)) == {c for c in tree.clients if each in tree.path(c)}
        assert tree.level[each] == max(
            len(tree.path(low)) - len(path) for low in tree.walk(each) if not tree.children[low]
        )
        up = tree.parent[each]
        family = () if up is None else tree.children[up]
        assert set(tree.siblings(each)) == set(family) - {each}
    assert sorted(tree.clusters + tree.clients) == sorted(order)


def test_the_last_value_of_a_level_goes_on() -> None:
    assert [value_at_level((0.1, 0.2), level) for level in (0, 1, 2, 3)] == [0.1, 0.1, 0.2, 0.2]
    assert [value_at_level([0.5], level) for level in (0, 1, 9)] == [0.5, 0.5, 0.5]
    assert [value_at_level(0.3, level) for level in (0, 1, 5)] == [0.3, 0.3, 0.3]
    assert value_at_level((), 1) == 0
