"""Clients that fit no longer where they are: who notices, where they look, where they go."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sofa_fl.methods.rules.clusters import Models, mean_of
from sofa_fl.methods.rules.losses import Losses, compare_losses
from sofa_fl.methods.rules.state import find_contradicted, find_moves, search_down

from sofa_fl.data.concepts import Phase, Script
from sofa_fl.engine.base import Exam
from sofa_fl.federation import Federation
from sofa_fl.topology.edits import Graft, Prune, Split, apply_all
from sofa_fl.topology.tree import NodeId, Tree
from tests.methods.cases import Spy
from tests.methods.living import THREE_GROUPS, A, B, C, D, living
from tests.topology.strategies import examples, ids, nested, node, tree_of, trees

# 9 ── 10 ── 0, 1, 2
#   ├─ 11 ── 3, 4, 5
#   └─ 12 ── 6, 7, 8
TREE = tree_of([[0, 1, 2], [3, 4, 5], [6, 7, 8]])
CHANGE: Script = [Phase(0, THREE_GROUPS), Phase(2, THREE_GROUPS | {0: B, 4: D, 5: D})]


def models_of(tree: Tree, fed: Federation) -> Models:
    """The clients' own centres, and of every cluster the mean."""
    points = torch.from_numpy(fed.data.train.x)
    models = {client: points[fed.owned[client]].mean(dim=0) for client in tree.clients}
    for cluster in reversed(tree.clusters):
        models[cluster] = mean_of(tree.children[cluster], tree, models, fed)
    return models


def spied() -> tuple[Federation, list[Exam], Models, Losses]:
    """A federation with its models and their losses, and the exams that are asked from now on."""
    fed = living(CHANGE, spy=True)
    assert isinstance(fed.engine, Spy)
    models = models_of(TREE, fed)
    losses = compare_losses(TREE, models, fed)
    fed.engine.exams.clear()
    return fed, fed.engine.exams, models, losses


def test_nobody_is_contradicted_where_nothing_changed() -> None:
    fed = living(CHANGE, spy=True)
    models = models_of(TREE, fed)
    losses = compare_losses(TREE, models, fed)
    assert find_contradicted(TREE, models, losses, 1e-6, fed.at(1)) == {}


def test_those_notice_whose_parent_loses_more_than_it_did() -> None:
    fed = living(CHANGE)
    models = models_of(TREE, fed)
    losses = compare_losses(TREE, models, fed)
    limits = find_contradicted(TREE, models, losses, 2.0, fed.at(2))
    assert limits == {
        client: losses[client][parent] + 2.0
        for client, parent in zip(ids(0, 4, 5), ids(10, 11, 11))
    }
    assert find_contradicted(TREE, models, losses, 1e3, fed.at(2)) == {}


def test_it_costs_nothing_and_nothing_is_asked_if_nobody_wants_to_know() -> None:
    fed, exams, models, losses = spied()
    before = fed.meter.bytes_down
    assert find_contradicted(TREE, models, losses, math.inf, fed.at(2)) == {}
    for quiet in (1, 3):  # the data are those of the round before
        assert find_contradicted(TREE, models, losses, 2.0, fed.at(quiet)) == {}
    assert exams == []
    find_contradicted(TREE, models, losses, 2.0, fed.at(2))
    assert len(exams) == 3, "only of those whose data are new"
    assert fed.meter.bytes_down == before, "their parents' models they are sent anyway"


def test_who_may_have_missed_something_asks_in_any_case() -> None:
    fed, exams, models, losses = spied()
    fed.register.flaws[NodeId(7)] = 1
    find_contradicted(TREE, models, losses, 2.0, fed.at(3))
    assert len(exams) == 1
    find_contradicted(TREE, models, losses, 2.0, replace(fed, lossy=True).at(3))
    assert len(exams) == 1 + 9


def test_only_those_who_are_asked_can_notice() -> None:
    fed = replace(living(CHANGE), participation=0.5)
    models = models_of(TREE, fed)
    losses = compare_losses(TREE, models, fed)
    found = []
    for round in range(2, 12):
        now = fed.at(round)
        limits = find_contradicted(TREE, models, losses, 2.0, now)
        assert limits.keys() == {0, 4, 5} & now.asked
        found.append(len(limits))
    assert len(set(found)) > 1


def test_beside_clusters_a_client_goes_by_its_own_model() -> None:
    """That of all clients loses no more for it than before, and it could never go home."""
    script = [Phase(0, THREE_GROUPS | {0: D}), Phase(2, THREE_GROUPS)]
    fed, tree = living(script), tree_of([0, [1, 2], [3, 4, 5], [6, 7, 8]])  # 9: 10, 11, 12
    models = models_of(tree, fed)
    losses = compare_losses(tree, models, fed)
    assert find_contradicted(tree, models, losses, 1e-6, fed.at(1)) == {}
    limits = find_contradicted(tree, models, losses, 3.0, fed.at(2))
    assert limits == {0: losses[node(0)][node(0)] + 3.0}
    ways = search_down(tree, models, list(limits), fed.at(2))
    assert find_moves(tree, ways, limits) == [Graft(node(0), node(10))]


def test_what_cannot_have_changed_is_not_asked_again() -> None:
    """A client's own model, where data never change and all who are asked answer."""
    tree = tree_of([0, [1, 2], [3, 4, 5], [6, 7, 8]])  # 9: 10, 11, 12

    def asked(fed: Federation) -> int:
        assert isinstance(fed.engine, Spy)
        models = models_of(tree, fed)
        losses = compare_losses(tree, models, fed)
        fed.engine.exams.clear()
        assert find_contradicted(tree, models, losses, 1e-6, fed.at(1)) == {}
        return len(fed.engine.exams) - len(fed.at(1).asked)

    still = replace(living([Phase(0, THREE_GROUPS)], spy=True), participation=0.99)
    assert 0 in still.at(1).asked
    assert asked(still) == -1
    assert asked(replace(still, lossy=True)) == 0
    changing = [Phase(0, THREE_GROUPS), Phase(5, THREE_GROUPS | {0: D})]
    assert asked(replace(living(changing, spy=True), participation=0.99)) == 0


def test_a_client_alone_is_contradicted_by_itself() -> None:
    fed = living([Phase(0, {0: A, 1: A}), Phase(2, {0: B, 1: A})])
    alone = tree_of(0)
    models = models_of(alone, fed)
    losses = compare_losses(alone, models, fed)
    limits = find_contradicted(alone, models, losses, 2.0, fed.at(2))
    assert list(limits) == [0]
    ways = search_down(alone, models, list(limits), fed.at(2))
    assert ways == {0: {}}
    assert find_moves(alone, ways, limits) == []


def test_the_way_goes_down_along_what_loses_least() -> None:
    fed = living(CHANGE)
    models, now = models_of(TREE, fed), living(CHANGE).at(2)
    ways = search_down(TREE, models, ids(0, 4, 3), now)
    assert [list(way) for way in ways.values()] == [[9, 11], [9], [9, 11]]
    (root, below) = now.held_out([(node(0), models[node(9)]), (node(0), models[node(11)])])
    assert ways[node(0)] == {9: root.loss, 11: below.loss}


def test_the_way_goes_down_as_deep_as_it_helps() -> None:
    groups = {client: (A, B, C, D)[client // 2] for client in range(8)}
    fed = living([Phase(0, groups)])
    deep = tree_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]]])  # 8: 9: 10, 11; 12: 13, 14
    models = models_of(deep, fed)
    ways = search_down(deep, models, ids(0, 3, 6), fed)
    assert [list(way) for way in ways.values()] == [[8, 9, 10], [8, 9, 11], [8, 12, 14]]
    for way in ways.values():
        assert list(way.values()) == sorted(way.values(), reverse=True)
    flat = tree_of([0, 1, 2, 3])
    assert list(search_down(flat, models_of(flat, fed), ids(0), fed)[node(0)]) == [4]


def far(*path: int) -> dict[NodeId, float]:
    """A way to where a client cannot live."""
    return dict.fromkeys(ids(*path), 9.0)


def near(*path: int) -> dict[NodeId, float]:
    """A way to where it can."""
    return {**far(*path), node(path[-1]): 0.5}


LIMITS = dict.fromkeys(ids(*range(9)), 1.0)


def test_a_client_goes_home() -> None:
    assert find_moves(TREE, {node(0): near(9, 11)}, LIMITS) == [Graft(node(0), node(11))]
    assert find_moves(TREE, {node(0): near(9)}, LIMITS) == [Graft(node(0), node(9))]


def test_a_client_that_is_home_stays() -> None:
    assert find_moves(TREE, {node(0): near(9, 10)}, LIMITS) == []
    assert find_moves(TREE, {}, LIMITS) == []


def test_what_is_left_of_a_cluster_is_pruned() -> None:
    ways = {node(0): near(9, 11), node(1): near(9, 12)}
    edits = find_moves(TREE, ways, LIMITS)
    assert edits == [Graft(node(0), node(11)), Graft(node(1), node(12)), Prune(node(10))]
    assert nested(apply_all(TREE, edits)) == nested(tree_of([2, [0, 3, 4, 5], [1, 6, 7, 8]]))


def test_those_whom_nothing_suits_leave_together() -> None:
    ways = {node(6): far(9), node(8): far(9, 12)}
    edits = find_moves(TREE, ways, LIMITS)
    assert edits == [Split(node(12), ids(13, 14), (ids(7), ids(6, 8))), Prune(node(13))]
    after = apply_all(TREE, edits)
    assert nested(after) == nested(tree_of([[0, 1, 2], [3, 4, 5], 7, [6, 8]]))


def test_those_of_different_clusters_do_not() -> None:
    """They may have nothing in common; SHAPE will see."""
    ways = {c: far(9) for c in ids(0, 3, 4)}
    after = apply_all(TREE, find_moves(TREE, ways, LIMITS))
    assert nested(after) == nested(tree_of([0, [1, 2], 5, [3, 4], [6, 7, 8]]))


def test_a_cluster_that_changed_as_a_whole_stays() -> None:
    assert find_moves(TREE, {c: far(9, 10) for c in ids(0, 1, 2)}, LIMITS) == []
    ways = {**{c: far(9, 10) for c in ids(0, 1)}, node(2): near(9, 11)}
    assert find_moves(TREE, ways, LIMITS) == [Graft(node(2), node(11))]


def test_but_not_with_those_who_come_for_what_it_was() -> None:
    ways = {**{c: far(9, 10) for c in ids(0, 1, 2)}, node(3): near(9, 10), node(4): near(9, 10)}
    after = apply_all(TREE, find_moves(TREE, ways, LIMITS))
    assert nested(after) == nested(tree_of([[0, 1, 2], [3, 4], 5, [6, 7, 8]]))


def test_in_a_flat_tree_two_parts_come_below_the_root() -> None:
    flat = tree_of([0, 1, 2, 3, 4])
    edits = find_moves(flat, {c: far(5) for c in ids(1, 3)}, LIMITS)
    assert edits == [Split(node(5), ids(6, 7), (ids(0, 2, 4), ids(1, 3)))]
    assert nested(apply_all(flat, edits)) == nested(tree_of([[0, 2, 4], [1, 3]]))
    assert find_moves(flat, {c: far(5) for c in flat.clients}, LIMITS) == []


def test_a_client_beside_clusters_is_on_its_own_already() -> None:
    tree = tree_of([[0, 1], [2, 3], 4])
    assert find_moves(tree, {node(4): far(5)}, LIMITS) == []
    assert find_moves(tree, {node(4): near(5, 6)}, LIMITS) == [Graft(node(4), node(6))]


@examples(150)
@given(st.data(), st.integers(2, 10))
def test_any_moves_leave_a_compact_tree_of_the_same_clients(data: st.DataObject, n: int) -> None:
    tree = data.draw(trees(ids(*range(n))))
    moved = data.draw(st.sets(st.sampled_from(tree.clients)))
    ways = {}
    for client in sorted(moved):
        end = data.draw(st.sampled_from(tree.clusters))
        way = tree.path(end)
        ways[client] = dict.fromkeys(way, 9.0) | {end: data.draw(st.sampled_from([0.5, 9.0]))}
    limits = dict.fromkeys(tree.clients, 1.0)
    edits = find_moves(tree, ways, limits)
    after = apply_all(tree, edits)
    assert after.members == tree.members
    assert after.is_compact
    homeless = {client for client, way in ways.items() if list(way.values())[-1] > 1.0}
    grafts = {edit.node: edit.onto for edit in edits if isinstance(edit, Graft)}
    assert not grafts.keys() & homeless
    assert grafts.keys() <= moved
    parts = {edit.node: edit.groups[1] for edit in edits if isinstance(edit, Split)}
    for cluster, left in parts.items():
        assert set(left) == {c for c in homeless if tree.parent[c] == cluster}


@pytest.mark.parametrize("num_homeless", [1, 2])
def test_new_clusters_have_numbers_of_their_own(num_homeless: int) -> None:
    ways = {node(first + k): far(9) for first in (0, 3, 6) for k in range(num_homeless)}
    splits = [e for e in find_moves(TREE, ways, LIMITS) if isinstance(e, Split)]
    assert [edit.into for edit in splits] == [ids(13, 14), ids(15, 16), ids(17, 18)]
