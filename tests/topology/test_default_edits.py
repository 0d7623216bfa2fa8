"""SHAPE: grafts, merges and prunes, each for the reason it exists."""

from __future__ import annotations

import numpy as np
import pytest

from sofa_fl.topology.clustering import default_edits as module
from sofa_fl.topology.clustering.default_edits import find_grafts, find_merges, find_prunes
from sofa_fl.topology.clustering.shape import shape
from sofa_fl.topology.geometry.space import Linkage, Metric
from sofa_fl.topology.tree import Tree, flat_tree
from sofa_fl.topology.tree.edits import Graft, Merge, Prune, count_edits
from tests.topology.strategies import (
    ALL,
    CLOUDS,
    OPERATIONS,
    WAYS,
    ids,
    nested,
    node,
    only,
    space_of,
    tree_of,
)


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_a_client_near_another_cluster_is_grafted(metric: Metric, linkage: Linkage) -> None:
    tree, space = tree_of([[0, 1, 2], [3, 4, 5]]), space_of(CLOUDS, None, metric, linkage)
    after, edits = shape(tree, space, only("graft"))
    assert edits == [Graft(node(2), node(8))]
    assert nested(after) == nested(tree_of([[0, 1], [2, 3, 4, 5]]))
    assert shape(tree, space, ALL)[1] == edits, "and nothing else happens for that reason"


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_a_cluster_moves_with_its_clients(metric: Metric, linkage: Linkage) -> None:
    positions = [[1, 0.0], [1, 0.1], [0.9, 0.2], [0.9, 0.3], [0.2, 0.9], [0.2, 0.8], *CLOUDS[3:]]
    tree = tree_of([[[0, 1], [2, 3], [4, 5]], [[6, 7], [8]]])
    after, edits = shape(tree, space_of(positions, None, metric, linkage), only("graft"))
    assert edits == [Graft(node(13), node(14))]
    assert nested(after) == nested(tree_of([[[0, 1], [2, 3]], [[4, 5], [6, 7], [8]]]))


def test_graft_keeps_to_the_level_of_the_parent() -> None:
    """Client 2 hangs from the root, which is alone on its level: near or not, it stays."""
    tree = tree_of([[0, 1], 2, [3, 4]])
    assert shape(tree, space_of([0, 1, 0.5, 9, 10]), only("graft")) == (tree, [])


def test_graft_does_not_look_below_the_present_parents_level() -> None:
    """Client 4 hangs beside a cluster, one level above cluster [5, 6] at whose place it is."""
    tree = tree_of([[[0, 1], [2, 3], 4], [5, 6]])
    space = space_of([0, 1, 2, 3, 50, 50, 50])
    assert shape(tree, space, only("graft")) == (tree, [])


def test_an_only_child_stays() -> None:
    tree = tree_of([[0], [1, 2]])
    assert shape(tree, space_of([5.1, 5, 5]), only("graft")) == (tree, [])


def test_no_node_holds_itself_in_place() -> None:
    """A heavy client is most of its cluster's place, and is compared with the others there."""
    tree, space = tree_of([[0, 1], [2, 3]]), space_of([0, 6, 3, 3.1], [1000, 1, 1, 1])
    assert Graft(node(0), node(6)) in find_grafts(tree, space, only("graft"))


@pytest.mark.parametrize(
    ("there", "moves"), [(10.0, False), (9.999, True), (10.001, False), (6.0, True)]
)
def test_tolerance_is_a_strict_factor(there: float, moves: bool) -> None:
    """Client 2, at 6, is 6 from its own and `there` - 6 from the others; 4 · 1.5 = 6."""
    tree, space = tree_of([[0, 1, 2], [3, 4]]), space_of([0, 0, 6, there, there])
    edits = find_grafts(tree, space, only("graft", tolerance=0.5))
    assert (Graft(node(2), node(7)) in edits) is moves


def test_without_tolerance_nearer_is_enough_and_as_near_is_not() -> None:
    tree, config = tree_of([[0, 1, 2], [3, 4]]), only("graft", tolerance=0)
    assert shape(tree, space_of([0, 0, 4, 8, 8]), config)[1] == []
    assert shape(tree, space_of([0, 0, 4, 7.99, 7.99]), config)[1] == [Graft(node(2), node(7))]


def test_a_cluster_may_lose_all_its_children() -> None:
    """Both clients of a cluster move in one pass: the empty cluster is then in nobody's way."""
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of([0, 10, 0.1, 0.2, 9.8, 9.9])
    grafts = find_grafts(tree, space, ALL)
    assert grafts == [Graft(node(0), node(8)), Graft(node(1), node(9))]
    for operations in (OPERATIONS, ("graft", "merge", "split"), ("graft", "prune")):
        after, edits = shape(tree, space, only(*operations))
        assert edits[:2] == grafts
        assert after.is_compact is ("prune" in operations)


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_near_sibling_clusters_are_merged(metric: Metric, linkage: Linkage) -> None:
    ends = np.array([[1, 0.0]] * 4 + [[0, 1.0]] * 2)
    positions = np.hstack([ends, 0.1 * np.eye(6)])  # noise of their own, the same for all
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of(positions, None, metric, linkage)
    after, edits = shape(tree, space, only("merge"))
    assert edits == [Merge(ids(7, 8), node(10))]
    assert nested(after) == nested(tree_of([[0, 1, 2, 3], [4, 5]]))
    if linkage == "average":  # by centroid the larger rest of the other attracts clients
        assert shape(tree, space, ALL)[1] == edits, "and nothing else happens for that reason"


def test_merge_is_by_a_fraction_of_the_scale() -> None:
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of([0, 2, 1.5, 3.5, 90, 91])
    apart = 1.5 / space.scale
    assert shape(tree, space, only("merge", merge=0.99 * apart))[1] == []
    assert len(shape(tree, space, only("merge", merge=1.01 * apart))[1]) == 1


def test_the_nearest_are_merged_first() -> None:
    tree, space = tree_of([[0, 1], [2, 3], [4, 5], [6, 7]]), space_of([0, 4, 2, 6, 3, 7, 99, 99])
    assert find_merges(tree, space, ALL) == [Merge(ids(10, 11), node(13))]
    after, edits = shape(tree, space, only("merge"))
    assert nested(after) == nested(tree_of([[0, 1, 2, 3, 4, 5], [6, 7]]))
    assert edits == [Merge(ids(10, 11), node(13)), Merge(ids(9, 13), node(14))]


def test_tight_clusters_that_are_two_stay_two() -> None:
    """However near by the scale: their clients are nearer to each other than to the other's."""
    tree, config = tree_of([[0, 1], [2, 3], [4, 5]]), only("merge", merge=0.5)
    assert shape(tree, space_of([0, 2, 2, 4, 99, 98]), config)[1] == [Merge(ids(7, 8), node(10))]
    assert shape(tree, space_of([0, 1, 2, 3, 99, 98]), config) == (tree, [])


def test_clients_are_never_merged() -> None:
    everything = only("merge", merge=100, split=100)
    flat = flat_tree(ids(*range(5)))
    assert shape(flat, space_of([0, 0, 0, 1, 1]), everything) == (flat, [])
    beside = tree_of([[0, 1], 2, 3])
    assert shape(beside, space_of([0, 1, 0.5, 0.5]), everything) == (beside, [])


def test_cousins_are_not_merged() -> None:
    tree = tree_of([[[0, 1], 2], [[3, 4], 5]])
    config = only("merge", merge=0.01)
    assert shape(tree, space_of([0, 0, 10, 0, 0, 20]), config) == (tree, [])


def test_merging_all_children_of_the_root_leaves_a_flat_tree() -> None:
    tree = tree_of([[0, 1], [2, 3]])
    after, edits = shape(tree, space_of([0, 2, 1, 3]), only("merge", "prune", merge=1, split=2))
    assert {k: n for k, n in count_edits(edits).items() if n} == {"merge": 1, "prune": 1}
    assert nested(after) == frozenset(range(4))


def test_a_cluster_with_one_child_is_pruned() -> None:
    tree = tree_of([[[0, 1]], [2], 3])
    after, edits = shape(tree, space_of([0, 1, 50, 99]), only("prune"))
    assert set(edits) == {Prune(node(5)), Prune(node(7))}
    assert nested(after) == nested(tree_of([[0, 1], 2, 3]))


def test_a_root_with_one_child_is_pruned() -> None:
    after, edits = shape(tree_of([[[0, 1]]]), space_of([0, 1]), only("prune"))
    assert edits == [Prune(node(3)), Prune(node(2))]
    assert nested(after) == nested(tree_of([0, 1]))


def test_a_chain_over_one_client_is_pruned_to_the_client() -> None:
    after, edits = shape(tree_of([[[[0]]]]), space_of([0]), ALL)
    assert after.root == 0
    assert len(edits) == 4


def test_clusters_without_clients_are_pruned() -> None:
    parent = {0: 4, 1: 4, 2: 5, 3: 5, 4: 9, 5: 9, 6: 9, 7: 6, 8: 6, 9: None}
    links = {node(at): None if up is None else node(up) for at, up in parent.items()}
    tree = Tree(links, ids(0, 1, 2, 3), 10)
    after, edits = shape(tree, space_of([0, 1, 50, 51]), ALL)
    assert set(edits) == {Prune(node(6)), Prune(node(7)), Prune(node(8))}
    assert nested(after) == nested(tree_of([[0, 1], [2, 3]]))


def test_pruning_may_leave_the_root_with_one_child() -> None:
    """The root's other child is empty: both go."""
    links = {node(0): node(2), node(1): node(2), node(2): node(4), node(3): node(4)}
    tree = Tree({**links, node(4): None}, ids(0, 1), 5)
    assert find_prunes(tree, space_of([0, 1]), ALL) == [Prune(node(3)), Prune(node(4))]
    after, edits = shape(tree, space_of([0, 1]), only("prune"))
    assert edits == [Prune(node(3)), Prune(node(4))]
    assert nested(after) == frozenset({0, 1})


def test_blocks_of_children_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    tree = tree_of([[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    space = space_of(rng.normal(size=(9, 2)))
    expected = find_grafts(tree, space, ALL)
    assert len(expected) > 1
    monkeypatch.setattr(module, "BLOCK", 1)
    assert find_grafts(tree, space, ALL) == expected
