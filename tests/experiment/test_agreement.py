"""Agreement with known groups, on trees small enough to count by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from sofa_fl.experiment.scoring.agreement import (
    adjusted_rand,
    ari,
    clusters_at_depth,
    fscore,
    moved,
    purity,
)
from sofa_fl.topology.tree import Tree, flat_tree
from tests.topology.strategies import Drawn, ids, tree_of

GROUPS = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
PAIRS = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
NESTED: list[Drawn] = [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


def test_the_true_tree_has_a_cut_for_every_level() -> None:
    tree = tree_of(NESTED)
    for groups in (GROUPS, PAIRS):
        assert ari(tree, groups) == 1
        assert purity(tree, groups) == 1


def test_a_flat_tree_tells_nothing() -> None:
    tree = flat_tree(ids(*range(12)))
    assert ari(tree, GROUPS) == 0
    assert purity(tree, GROUPS) == pytest.approx(3 / 12), "a group's share of the root"
    assert purity(tree, PAIRS) == pytest.approx(6 / 12)


def test_one_level_may_be_found_and_the_other_not() -> None:
    tree = tree_of([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
    assert ari(tree, GROUPS) == 1
    assert purity(tree, GROUPS) == 1
    assert 0 < ari(tree, PAIRS) < 1
    # Of 15 pairs of a half, 6 meet in their group, 9 in the root.
    assert purity(tree, PAIRS) == pytest.approx((6 * 1 + 9 * 0.5) / 15)


def test_groups_at_uneven_depths_are_found() -> None:
    """Where no cut by depth has them all."""
    tree = tree_of([[[0, 1, 2], [3, 4, 5]], [6, 7, 8], [9, 10, 11]])
    assert ari(tree, GROUPS) < 1
    assert fscore(tree, GROUPS) == 1
    assert purity(tree, GROUPS) == 1


def test_fscore_by_hand() -> None:
    """The first group has {0, 1, 2} with two of three; the second the root, or one of its two."""
    tree = tree_of([[0, 1, 2], 3])
    first, second = 2 * 2 / (3 + 2), 2 * 2 / (4 + 2)
    assert fscore(tree, [0, 0, 1, 1]) == pytest.approx((2 * first + 2 * second) / 4)
    assert fscore(flat_tree(ids(*range(12))), GROUPS) == pytest.approx(2 / (1 + 4))
    assert fscore(tree_of(NESTED), GROUPS) == fscore(tree_of(NESTED), PAIRS) == 1
    assert fscore(tree_of([0, 1, 2]), [0, 1, 2]) == 1, "a client is a cluster of one"


def test_fscore_counts_what_is_merged_and_what_is_torn_apart() -> None:
    merged = tree_of([[0, 1, 2, 3, 4, 5], [6, 7, 8], [9, 10, 11]])
    assert fscore(merged, GROUPS) == pytest.approx((6 * (2 * 3 / 9) + 6) / 12)
    torn = tree_of([[0, 1], 2, [3, 4, 5], [6, 7, 8], [9, 10, 11]])
    assert fscore(torn, GROUPS) == pytest.approx((3 * (2 * 2 / 5) + 9) / 12)


def test_purity_by_hand() -> None:
    """0 and 1 meet in {0, 1, 2}, two thirds of their group; 2 and 3 in the root, a half."""
    assert purity(tree_of([[0, 1, 2], 3]), [0, 0, 1, 1]) == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_cuts_are_by_depth_and_a_short_path_ends_in_the_client() -> None:
    tree = tree_of([[[0, 1], 2], 3])
    root, outer, inner = (int(node) for node in tree.path(tree.clients[0])[:3])
    assert clusters_at_depth(tree, 0) == [root] * 4
    assert clusters_at_depth(tree, 1) == [outer, outer, outer, 3]
    assert clusters_at_depth(tree, 2) == [inner, inner, 2, 3]
    assert clusters_at_depth(tree, 3) == [0, 1, 2, 3]


def test_the_order_of_the_clients_is_that_of_the_tree() -> None:
    tree = tree_of(NESTED)
    shuffled = Tree(tree.parent, tree.clients[::-1], tree.next_id)
    assert ari(shuffled, GROUPS[::-1]) == 1
    assert purity(shuffled, GROUPS[::-1]) == 1
    assert purity(shuffled, [0, 1] * 6) < 1


def test_one_client_and_groups_of_one() -> None:
    assert ari(tree_of(0), [5]) == 1
    assert purity(tree_of(0), [5]) == 1
    assert purity(tree_of([0, 1, 2]), [0, 1, 2]) == 1


def test_one_group_per_client_is_needed() -> None:
    with pytest.raises(ValueError, match="3 clients, 2 groups"):
        ari(tree_of([0, 1, 2]), [0, 1])


@pytest.mark.parametrize("seed", range(5))
def test_is_what_the_definitions_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = tree_of([[[0, 1], 2, [3, 4, [5, 6]]], [7, [8, 9]], 10])
    groups = rng.integers(0, 3, 11).tolist()
    shares = []
    for a, b in itertools.combinations(range(11), 2):
        if groups[a] == groups[b]:
            paths = [tree.path(tree.clients[client]) for client in (a, b)]
            lowest = [x for x, y in zip(*paths) if x == y][-1]
            below = [groups[int(client)] for client in tree.clients_of(lowest)]
            shares.append(below.count(groups[a]) / len(below))
    assert purity(tree, groups) == pytest.approx(np.mean(shares))
    cuts = [adjusted_rand_score(groups, clusters_at_depth(tree, d)) for d in range(5)]
    assert ari(tree, groups) == max(cuts)


@pytest.mark.parametrize("size", [1, 2, 3, 50, 20_000])
def test_the_index_is_scikit_learns_to_the_last_bit(size: int) -> None:
    rng = np.random.default_rng(size)
    for groups, clusters in itertools.product((1, 2, 7, size), repeat=2):
        labels = [rng.integers(0, most, size).tolist() for most in (groups, clusters)]
        assert adjusted_rand(*labels) == adjusted_rand_score(*labels)


def test_nobody_moves_when_clusters_are_only_called_otherwise() -> None:
    before, after = tree_of([[0, 1, 2], [3, 4, 5]]), tree_of([[3, 4, 5], [0, 1, 2]])
    assert before.parent != after.parent
    assert moved(before, after) == moved(before, before) == 0


def test_moved_counts_those_outside_the_best_matching() -> None:
    before = tree_of([[0, 1, 2], [3, 4, 5]])
    assert moved(before, tree_of([[0, 1, 2, 3], [4, 5]])) == 1
    assert moved(before, tree_of([[0, 1], [2, 3, 4, 5]])) == 1
    assert moved(before, tree_of([[0, 1, 5], [2, 3, 4]])) == 2
    assert moved(before, flat_tree(ids(*range(6)))) == 3, "one cluster takes the place of one"
    assert moved(flat_tree(ids(*range(6))), before) == 3


def test_only_clients_of_both_trees_can_move() -> None:
    before = tree_of([[0, 1, 2], [3, 4, 5]])
    later = tree_of([[1, 2, 3], [0, 4]])  # 5 has left
    assert moved(before, later) == 2
    assert moved(later, before) == 2
    assert moved(flat_tree(ids(0, 1)), flat_tree(ids(2, 3))) == 0
    assert moved(flat_tree(ids(0)), flat_tree(ids(0))) == 0
