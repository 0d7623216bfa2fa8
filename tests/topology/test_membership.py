"""Newcomers go where they are near; those who leave take clusters with them that nobody needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.errors import TopologyError
from sofa_fl.topology.edits import Edit, Join, Leave, Prune, apply_all
from sofa_fl.topology.shape import find_joins, find_leaves
from sofa_fl.topology.space import Space
from tests.topology.strategies import WAYS, examples, ids, nested, node, tree_of, trees


def space_at(positions: dict[int, float], weights: dict[int, float] | None = None) -> Space:
    """Clients on a line, by number."""
    mass = np.array([(weights or {}).get(client, 1.0) for client in positions])
    return Space(
        ids(*positions), np.array(list(positions.values()))[:, None], mass, linkage="average"
    )


# 5 ── 6 ── 0, 1
#   ├─ 7 ── 2, 3
#   └─ 4
TREE = tree_of([[0, 1], [2, 3], 4])
THERE = {0: 0.0, 1: 1.0, 2: 10.0, 3: 11.0, 4: 30.0}


@pytest.mark.parametrize(("place", "onto"), [(0.4, 6), (3.0, 6), (8.0, 7), (10.4, 7), (-9.0, 6)])
def test_a_newcomer_joins_the_nearest_cluster(place: float, onto: int) -> None:
    joins = find_joins(TREE, space_at(THERE | {20: place}))
    assert joins == [Join(node(20), node(onto))]
    assert node(20) in apply_all(TREE, joins).children[node(onto)]


def test_near_to_none_of_them_it_joins_the_root() -> None:
    """Most of whose weight is the client beside it, that has no cluster either."""
    space = space_at(THERE | {20: 31.0}, {4: 10.0})
    assert find_joins(TREE, space) == [Join(node(20), node(5))]


def test_of_two_clusters_as_near_a_newcomer_joins_the_tighter_one() -> None:
    """By average linkage: the mean of the wider one is nearer, most of its clients are not."""
    tight_and_wide = {0: 0.0, 1: 0.2, 2: 2.0, 3: 8.0, 4: 30.0}
    joins = find_joins(TREE, space_at(tight_and_wide | {20: 2.6, 21: 7.0}))
    assert joins == [Join(node(20), node(6)), Join(node(21), node(7))]


def test_newcomers_do_not_wait_for_each_other() -> None:
    together = find_joins(TREE, space_at(THERE | {20: 0.5, 21: 10.5, 22: 9.5}))
    assert together == [Join(node(n), node(onto)) for n, onto in ((20, 6), (21, 7), (22, 7))]
    alone = [find_joins(TREE, space_at(THERE | {n: p}))[0] for n, p in ((20, 0.5), (21, 10.5))]
    assert alone == together[:2]


def test_clusters_of_which_nobody_is_heard_are_nowhere() -> None:
    heard = {0: 0.0, 4: 30.0}
    assert find_joins(TREE, space_at(heard | {20: 10.5})) == [Join(node(20), node(6))]
    nobody = space_at({20: 10.5, 21: 0.0})
    assert find_joins(TREE, nobody) == [Join(node(20), node(5)), Join(node(21), node(5))]


def test_no_newcomers_no_joins() -> None:
    assert find_joins(TREE, space_at(THERE)) == []
    assert find_joins(TREE, space_at({1: 0.0})) == []


def test_newcomers_make_a_cluster_with_a_client_that_is_alone() -> None:
    alone = tree_of(0)
    for heard in ({0: 0.0}, {}):
        joins = find_joins(alone, space_at(heard | {3: 1.0, 4: 9.0}))
        above = node(5)  # no number of a client
        assert joins == [Join(node(3), node(0), above), Join(node(4), above)]
        tree = apply_all(alone, joins)
        assert tree.root == above
        assert tree.clients == ids(0, 3, 4)


def test_who_is_not_present_leaves_and_empty_clusters_go() -> None:
    assert find_leaves(TREE, ids(0, 1, 2, 3, 4)) == []
    assert find_leaves(TREE, ids(0, 1, 2, 3, 4, 9)) == []
    assert find_leaves(TREE, ids(0, 1, 3, 4)) == [Leave(node(2)), Prune(node(7))]
    edits = find_leaves(TREE, ids(0, 4))
    assert edits == [*(Leave(node(n)) for n in (1, 2, 3)), Prune(node(7)), Prune(node(6))]
    assert nested(apply_all(TREE, edits)) == nested(tree_of([0, 4]))
    assert nested(apply_all(TREE, find_leaves(TREE, ids(3)))) == 3


@examples(150)
@given(st.data(), st.integers(2, 12), st.booleans())
def test_after_any_leaves_the_tree_is_compact(data: st.DataObject, n: int, compact: bool) -> None:
    tree = data.draw(trees(ids(*range(n)), compact=compact))
    present = data.draw(st.sets(st.sampled_from(tree.clients), min_size=1))
    edits = find_leaves(tree, sorted(present))
    after = apply_all(tree, edits)
    assert after.members == present
    assert after.is_compact or not edits
    assert {e.node for e in edits if isinstance(e, Leave)} == tree.members - present
    kept = set(after.parent) - present
    assert kept <= set(tree.clusters), "no cluster is new"
    for cluster in kept:  # and none has others than it had
        assert set(after.clients_of(cluster)) == set(tree.clients_of(cluster)) & present


@examples(100)
@given(st.data(), st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_joins_bring_in_all_newcomers_and_move_nobody(
    data: st.DataObject, n: int, num_new: int, seed: int
) -> None:
    tree = data.draw(trees(ids(*range(n))))
    metric, linkage = data.draw(st.sampled_from(WAYS))
    heard = data.draw(st.sets(st.sampled_from(tree.clients)))
    clients = (*sorted(heard), *ids(*range(100, 100 + num_new)))
    rng = np.random.default_rng(seed)
    space = Space(
        clients,
        rng.normal(size=(len(clients), 3)),
        rng.uniform(1, 9, len(clients)),
        metric,
        linkage,
    )
    joins: list[Edit] = find_joins(tree, space)
    after = apply_all(tree, joins)
    assert after.clients == (*tree.clients, *ids(*range(100, 100 + num_new)))
    assert after.is_compact
    if tree.clusters:
        assert {c: after.parent[c] for c in tree.parent} == dict(tree.parent)


def test_a_tree_that_was_not_compact_is_left_alone_if_nobody_leaves() -> None:
    assert find_leaves(tree_of([[0], 1]), ids(0, 1)) == []


def test_with_average_linkage_a_newcomer_goes_by_the_clients() -> None:
    """The mean of 0 and 1 is nearest, but they are far from it."""
    tree = tree_of([[0, 1], [2, 3]])
    space = space_at({0: -50.0, 1: 50.0, 2: 20.0, 3: 21.0, 20: 0.0})
    assert find_joins(tree, space) == [Join(node(20), node(6))]


def test_if_everybody_left_those_present_join_the_root_first() -> None:
    """What was learned is not lost."""
    edits = find_leaves(TREE, ids(20, 21))
    assert edits[:2] == [Join(node(20), node(5)), Join(node(21), node(5))]
    assert edits[2:7] == [Leave(client) for client in TREE.clients]
    after = apply_all(TREE, edits)
    assert nested(after) == frozenset({20, 21})
    assert after.root == TREE.root
    one = apply_all(TREE, find_leaves(TREE, ids(20)))
    assert one.root == 20
    alone = tree_of(0)
    assert nested(apply_all(alone, find_leaves(alone, ids(1)))) == 1
    assert nested(apply_all(alone, find_leaves(alone, ids(1, 2, 9)))) == frozenset({1, 2, 9})


def test_a_tree_that_everybody_left_is_refused() -> None:
    for tree in (TREE, tree_of(0)):
        with pytest.raises(TopologyError, match="cannot leave: a tree needs a client"):
            find_leaves(tree, ())


@examples(100)
@given(st.data(), st.integers(1, 9), st.sets(st.integers(0, 40), min_size=1))
def test_whoever_is_present_the_tree_can_be_theirs(
    data: st.DataObject, n: int, numbers: set[int]
) -> None:
    """Also if a client has the number that the next cluster would have had."""
    tree = data.draw(trees(ids(*range(n))))
    present = ids(*sorted(numbers - set(tree.clusters))) or tree.clients
    after = apply_all(tree, find_leaves(tree, present))
    left = after.members & set(present)
    assert left == (tree.members & set(present) or set(present))
    rng = np.random.default_rng(n)
    space = Space(present, rng.normal(size=(len(present), 2)), np.ones(len(present)))
    assert apply_all(after, find_joins(after, space)).members == set(present)
