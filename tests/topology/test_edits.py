"""The edits: valid ones keep a tree a tree, a list of them is a history, others are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.errors import TopologyError
from sofa_fl.experiment.storage.events import KINDS, count_edits, edit_from_json, edit_to_json
from sofa_fl.topology.edits import Edit, Graft, Join, Leave, Merge, Prune, Split, apply_all
from sofa_fl.topology.tree import NodeId, Tree
from tests.topology.strategies import Draw, examples, ids, nested, node, tree_of, trees


@st.composite
def edits_of(draw: Draw, tree: Tree) -> Edit:
    """Any valid edit of `tree` but a graft to where the node is."""
    moves = [
        (low, onto)
        for low in tree.parent
        if low != tree.root
        for onto in sorted(set(tree.clusters) - set(tree.walk(low)) - {tree.parent[low]})
    ]
    families = [
        clusters
        for cluster in tree.clusters
        if len(clusters := [c for c in tree.children[cluster] if c not in tree.members]) > 1
    ]
    wide = [cluster for cluster in tree.clusters if len(tree.children[cluster]) > 1]
    gone = [c for c in tree.clusters if c != tree.root or len(tree.children[c]) < 2]
    possible = {
        "graft": moves,
        "merge": families,
        "split": wide,
        "prune": gone,
        "join": tree.clusters or tree.clients,
        "leave": tree.clients if len(tree.clients) > 1 else (),
    }
    kind = draw(st.sampled_from([name for name, choices in possible.items() if choices]))
    skip = draw(st.integers(0, 2))  # a history may leave gaps between ids
    if kind == "join":
        client = NodeId(tree.next_id + skip)
        onto = draw(st.sampled_from(tree.clusters or tree.clients))
        return Join(client, onto, None if tree.clusters else NodeId(client + 1))
    if kind == "leave":
        return Leave(draw(st.sampled_from(tree.clients)))
    if kind == "graft":
        return Graft(*draw(st.sampled_from(moves)))
    if kind == "merge":
        family = draw(st.permutations(draw(st.sampled_from(families))))
        size = draw(st.integers(2, len(family)))
        return Merge(tuple(family[:size]), NodeId(tree.next_id + skip))
    if kind == "prune":
        return Prune(draw(st.sampled_from(gone)))
    cluster = draw(st.sampled_from(wide))
    children = draw(st.permutations(tree.children[cluster]))
    num_parts = draw(st.integers(2, len(children)))
    groups = tuple(tuple(children[part::num_parts]) for part in range(num_parts))
    num_parts -= draw(st.integers(0, num_parts - 1))  # the children of the others stay
    groups = groups[:num_parts]
    first = tree.next_id + skip
    return Split(cluster, ids(*range(first, first + num_parts)), groups)


def check_invariants(tree: Tree) -> None:
    """One root, no cycle, clients are leaves; told from the parent map alone."""
    roots = [at for at, up in tree.parent.items() if up is None]
    assert len(roots) == 1
    for each in tree.parent:
        at, steps = each, 0
        while (up := tree.parent[at]) is not None:
            at, steps = up, steps + 1
            assert steps <= len(tree.parent), "a cycle"
        assert at == roots[0]
    assert not tree.members & {up for up in tree.parent.values() if up is not None}
    assert tree.members <= set(tree.parent)
    assert tree.next_id > max(tree.parent)


@examples(150)
@given(st.data(), st.integers(2, 9), st.integers(1, 12))
def test_random_edits_keep_a_tree_a_tree(data: st.DataObject, n: int, num_edits: int) -> None:
    first = tree = data.draw(trees(ids(*range(n)), compact=False))
    history: list[Edit] = []
    ever_used = set(first.parent)
    for _ in range(num_edits):
        edit = data.draw(edits_of(tree))
        after = apply_all(tree, [edit])
        check_invariants(after)
        come = {edit.node} if isinstance(edit, Join) else set()
        gone = {edit.node} if isinstance(edit, Leave) else set()
        assert after.members == (tree.members | come) - gone
        new = set(after.parent) - set(tree.parent)
        assert not new & ever_used, "an id was used again"
        assert after.next_id >= tree.next_id
        ever_used |= new
        assert after.next_id > max(ever_used)
        history.append(edit)
        tree = after
    assert apply_all(first, history) == tree
    written = json.loads(json.dumps([edit_to_json(edit) for edit in history]))
    assert [edit_from_json(record) for record in written] == history
    counts = count_edits(history)
    assert list(counts) == list(KINDS)
    assert counts["join"] - counts["leave"] == len(tree.clients) - len(first.clients)


def test_no_edits_leave_the_tree() -> None:
    tree = tree_of([[0, 1], 2])
    assert apply_all(tree, []) is tree


def test_graft_takes_the_subtree_along() -> None:
    tree = tree_of([[[0, 1], 2], [3, 4]])  # 5: 6: 7, and 8
    assert nested(apply_all(tree, [Graft(node(7), node(8))])) == nested(
        tree_of([[2], [3, 4, [0, 1]]])
    )
    assert nested(apply_all(tree, [Graft(node(2), node(5))])) == nested(
        tree_of([[[0, 1]], [3, 4], 2])
    )


def test_graft_may_leave_a_cluster_empty() -> None:
    tree = apply_all(tree_of([[0], [1]]), [Graft(node(0), node(3))])  # 2: 3, and 4
    tree = apply_all(tree, [Graft(node(1), node(3))])
    assert tree.children[node(4)] == ()
    assert nested(apply_all(tree, [Prune(node(4))])) == frozenset({frozenset({0, 1})})


def test_prune_puts_the_child_in_its_place() -> None:
    tree = tree_of([[[0, 1]], 2])  # 3: 4: 5
    pruned = apply_all(tree, [Prune(node(4))])
    assert pruned.parent[node(5)] == 3
    assert nested(pruned) == nested(tree_of([[0, 1], 2]))


def test_prune_of_the_root_makes_the_child_the_root() -> None:
    tree = tree_of([[0, 1]])  # 2: 3
    pruned = apply_all(tree, [Prune(node(2))])
    assert pruned.root == 3
    assert pruned.next_id == tree.next_id
    assert apply_all(tree_of([0]), [Prune(node(1))]).root == 0


def test_merge_gives_one_cluster_all_children() -> None:
    tree = tree_of([[0, 1], [2, 3], [4, 5]])  # 6: 7, 8 and 9
    merged = apply_all(tree, [Merge(ids(7, 9), node(10))])
    assert merged.children[node(10)] == ids(0, 1, 4, 5)
    assert nested(merged) == nested(tree_of([[0, 1, 4, 5], [2, 3]]))
    assert merged.next_id == 11
    everything = apply_all(tree, [Merge(ids(9, 7, 8), node(15))])
    assert nested(everything) == nested(tree_of([[0, 1, 2, 3, 4, 5]]))
    assert everything.next_id == 16


def test_split_puts_the_parts_in_the_place_of_the_cluster() -> None:
    tree = tree_of([[0, 1, 2, 3], 4])  # 5: 6
    split = apply_all(tree, [Split(node(6), ids(7, 8), (ids(0, 2), ids(1, 3)))])
    assert split.children[split.root] == ids(4, 7, 8)
    assert nested(split) == nested(tree_of([[0, 2], [1, 3], 4]))


def test_split_of_the_root_puts_the_parts_below_it() -> None:
    tree = tree_of([0, 1, 2, 3])  # 4
    split = apply_all(tree, [Split(node(4), ids(5, 6), (ids(0, 2), ids(1, 3)))])
    assert split.root == 4
    assert nested(split) == nested(tree_of([[0, 2], [1, 3]]))


def test_a_cluster_stays_if_some_of_its_children_are_in_no_part() -> None:
    tree = tree_of([[0, 1, 2, 3], 4])  # 5: 6
    one = apply_all(tree, [Split(node(6), ids(7), (ids(0, 2),))])
    assert nested(one) == nested(tree_of([[[0, 2], 1, 3], 4]))
    assert one.children[node(6)] == ids(1, 3, 7)
    two = apply_all(tree, [Split(node(6), ids(7, 8), (ids(0, 2), ids(3)))])
    assert nested(two) == nested(tree_of([[[0, 2], [3], 1], 4]))
    root = apply_all(tree, [Split(node(5), ids(9), (ids(6),))])
    assert nested(root) == nested(tree_of([[[0, 1, 2, 3]], 4]))
    assert (root.root, root.next_id) == (5, 10)


def test_merge_undoes_a_split_but_for_the_id() -> None:
    tree = tree_of([[0, 1, 2, 3], 4])
    split = apply_all(tree, [Split(node(6), ids(7, 8), (ids(0, 2), ids(1, 3)))])
    assert nested(apply_all(split, [Merge(ids(7, 8), node(9))])) == nested(tree)


def test_a_client_joins_a_cluster_as_the_last_of_the_clients() -> None:
    tree = tree_of([[0, 1], 2])  # 3: 4
    joined = apply_all(tree, [Join(node(9), node(4))])
    assert joined.clients == ids(0, 1, 2, 9)
    assert nested(joined) == nested(tree_of([[0, 1, 9], 2]))
    assert joined.next_id == 10


def test_a_client_joins_one_that_is_alone() -> None:
    joined = apply_all(tree_of(0), [Join(node(1), node(0), node(5))])
    assert joined.root == 5
    assert joined.clients == joined.children[node(5)] == ids(0, 1)


def test_who_leaves_may_come_back_and_leaves_its_cluster_behind() -> None:
    tree = tree_of([[0, 1], 2])  # 3: 4
    left = apply_all(tree, [Leave(node(0)), Leave(node(1))])
    assert left.clients == ids(2)
    assert left.children[node(4)] == ()
    assert left.next_id == tree.next_id
    assert nested(apply_all(left, [Join(node(0), node(3))])) == nested(tree_of([[], 0, 2]))


# 6 ── 7 ── 0, 1
#   ├─ 8 ── 9 ── 2, 3
#   │    └─ 4
#   └─ 5
TREE = tree_of([[0, 1], [[2, 3], 4], 5])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Graft(node(8), node(9)), "own descendant"),
        (Graft(node(8), node(8)), "own descendant"),
        (Graft(node(6), node(7)), "own descendant"),
        (Graft(node(0), node(5)), "have children"),
        (Graft(node(50), node(7)), "not in the tree"),
        (Graft(node(0), node(50)), "nodes .50. are not in the tree"),
        (Prune(node(0)), "it is a client"),
        (Prune(node(6)), "cannot prune 6: a root of 3 children"),
        (Prune(node(50)), "not in the tree"),
        (Merge(ids(7, 9), node(10)), "not siblings"),
        (Merge(ids(6, 7), node(10)), "not siblings"),
        (Merge(ids(7), node(10)), "not siblings"),
        (Merge((), node(10)), "not siblings"),
        (Merge(ids(7, 7), node(10)), "not siblings"),
        (Merge(ids(6, 6), node(10)), "not siblings"),
        (Merge(ids(7, 8, 7), node(10)), "not siblings"),
        (Merge(ids(0, 1), node(10)), "clients are never merged"),
        (Merge(ids(7, 5), node(10)), "clients are never merged"),
        (Merge(ids(7, 8), node(7)), "not new"),
        (Merge(ids(7, 8), node(9)), "not new"),
        (Merge(ids(7, 50), node(10)), "not in the tree"),
        (Split(node(7), ids(10, 11), (ids(0), ids(1, 2))), "do not divide"),
        (Split(node(7), ids(10, 11), (ids(0), ids(0, 1))), "do not divide"),
        (Split(node(7), ids(10, 11), (ids(0), ())), "do not divide"),
        (Split(node(7), ids(10), (ids(0), ids(1))), "two parts if no child stays"),
        (Split(node(7), ids(10, 11, 12), (ids(0), ids(1))), "two parts if no child stays"),
        (Split(node(7), ids(10, 10), (ids(0), ids(1))), "two parts if no child stays"),
        (Split(node(7), ids(10), (ids(0, 1),)), "two parts if no child stays"),
        (Split(node(7), ids(10, 11, 12), (ids(0), ids(1), ())), "do not divide"),
        (Split(node(6), (), ()), "two parts if no child stays"),
        (Split(node(6), ids(10, 11), (ids(5),)), "two parts if no child stays"),
        (Split(node(6), ids(10), (ids(5, 5),)), "do not divide"),
        (Split(node(6), ids(10), (ids(5, 4),)), "do not divide"),
        (Split(node(6), ids(9), (ids(5, 7),)), "not new"),
        (Split(node(7), ids(9, 10), (ids(0), ids(1))), "not new"),
        (Split(node(0), (), ()), "two parts if no child stays"),
        (Split(node(0), ids(10, 11), ((), ())), "do not divide"),
        (Split(node(50), ids(10, 11), (ids(0), ids(1))), "not in the tree"),
        (Join(node(0), node(7)), "0 cannot join: it is in the tree already"),
        (Join(node(7), node(6)), "7 cannot join: it is in the tree already"),
        (Join(node(10), node(0)), "10 cannot join under 0: it is a client"),
        (Join(node(10), node(0), node(11)), "10 cannot join under 0: it is a client"),
        (Join(node(10), node(50)), "nodes .50. are not in the tree"),
        (Leave(node(7)), "7 cannot leave: it is a cluster"),
        (Leave(node(50)), "not in the tree"),
    ],
    ids=str,
)
def test_refuses_what_would_break_the_tree(edit: Edit, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        apply_all(TREE, [edit])


def test_an_id_of_the_past_is_not_new() -> None:
    merged = apply_all(TREE, [Merge(ids(7, 8), node(10))])
    split = apply_all(merged, [Split(node(10), ids(11, 12), (ids(0, 1), ids(9, 4)))])
    assert 10 not in split.parent
    with pytest.raises(TopologyError, match="not new"):
        apply_all(split, [Merge(ids(11, 12), node(10))])
    with pytest.raises(TopologyError, match="not new"):
        apply_all(split, [Split(node(11), ids(7, 8), (ids(0), ids(1)))])


def test_a_client_alone_has_no_edits() -> None:
    alone = tree_of(0)
    for edit in (Prune(node(0)), Split(node(0), (), ()), Graft(node(0), node(0))):
        with pytest.raises(TopologyError):
            apply_all(alone, [edit])
    with pytest.raises(TopologyError, match="0 cannot leave: a tree needs a client"):
        apply_all(alone, [Leave(node(0))])
    with pytest.raises(TopologyError, match="1 cannot join under 0: it is a client"):
        apply_all(alone, [Join(node(1), node(0))])
    with pytest.raises(TopologyError, match="not new"):
        apply_all(alone, [Join(node(1), node(0), node(0))])


def test_a_bad_edit_in_a_list_stops_it() -> None:
    with pytest.raises(TopologyError, match="not in the tree"):
        apply_all(TREE, [Merge(ids(7, 8), node(10)), Prune(node(7))])


def test_a_cluster_of_any_number_of_children_is_pruned_and_these_take_its_place() -> None:
    assert nested(apply_all(TREE, [Prune(node(8))])) == nested(tree_of([[0, 1], [2, 3], 4, 5]))
    assert nested(apply_all(TREE, [Prune(node(9))])) == nested(tree_of([[0, 1], [2, 3, 4], 5]))
    both = apply_all(TREE, [Prune(node(8)), Prune(node(9)), Prune(node(7))])
    assert nested(both) == nested(tree_of([0, 1, 2, 3, 4, 5]))
    assert (both.root, both.next_id) == (TREE.root, TREE.next_id)
    empty = apply_all(TREE, [Leave(node(0)), Leave(node(1)), Prune(node(7))])
    assert nested(empty) == nested(tree_of([[[2, 3], 4], 5]))
