"""A world of squares: what a model loses is the squared distance."""

from __future__ import annotations

import numpy as np
import pytest

from sofa_fl.topology.clustering.evidence import DistanceEvidence, moved_between
from sofa_fl.topology.space import Space
from sofa_fl.topology.edits import Graft, Join, Leave, Merge, Prune, Split, apply_all
from tests.topology.strategies import ids, node, space_of, tree_of

TREE = tree_of([[0, 1], [2, 3]])  # 4: 5 and 6


def test_a_model_is_the_weighted_mean_of_the_clients_below_its_nodes() -> None:
    evidence = DistanceEvidence(TREE, space_of([0, 4, 10, 20], [3, 1, 1, 1]))
    questions = [(node(0), ids(5)), (node(2), ids(5)), (node(3), ids(3, 5)), (node(1), ids(4))]
    expected = [1.0, 81.0, (20 - 24 / 5) ** 2, (4 - 34 / 6) ** 2]
    assert evidence.losses(questions) == pytest.approx(expected)
    assert evidence.losses(questions, more=True) == pytest.approx(expected)
    assert evidence.losses([]).shape == (0,)
    assert (evidence.round, evidence.blind_loss, evidence.samples(node(2))) == (0, 1.0, 1)


def test_clients_without_a_position_do_not_count() -> None:
    space = Space(ids(1, 2), np.array([[4.0], [9.0]]), np.ones(2))
    evidence = DistanceEvidence(tree_of([[0, 1], [2], [3]]), space)  # 4: 5, 6 and 7
    assert evidence.losses([(node(2), ids(5)), (node(2), ids(7))]).tolist() == [25, np.inf]


def test_after_edits_it_knows_the_new_tree() -> None:
    evidence = DistanceEvidence(TREE, space_of([0, 4, 10, 20]), blind_loss=7.0, round=3)
    moved = Graft(node(2), node(5))
    after = evidence.after(apply_all(TREE, [moved]), [moved])
    assert (after.blind_loss, after.round) == (7.0, 3)
    assert after.losses([(node(3), ids(6)), (node(0), ids(5))]) == pytest.approx([0, (14 / 3) ** 2])


def test_a_client_has_moved_if_its_parent_is_another() -> None:
    """Whatever edit it was; a cluster that moves takes its clients along, and these have not."""
    deep = tree_of([[[0, 1], 2], [3, 4], 5])  # 6: 7, 9 and 5; 7: 8 and 2
    for edit, moved in (
        (Graft(node(2), node(9)), {2}),
        (Graft(node(8), node(9)), set()),
        (Merge(ids(7, 9), node(10)), {2, 3, 4}),
        (Split(node(6), ids(10), (ids(5, 9),)), {5}),
        (Join(node(10), node(9)), {10}),
        (Leave(node(3)), set()),
    ):
        assert moved_between(deep, apply_all(deep, [edit])) == moved
    thin = tree_of([[0], 1])  # 2: 3 and 1
    assert moved_between(thin, apply_all(thin, [Prune(node(3))])) == {0}
    assert moved_between(deep, deep) == set()


def test_who_moved_before_has_moved_still() -> None:
    """Even back to where it was: its position says nothing about its siblings of now."""
    there = apply_all(TREE, [Graft(node(2), node(5))])
    assert moved_between(TREE, there, ids(0)) == {0, 2}
    assert moved_between(there, TREE, moved_between(TREE, there)) == {2}


def test_evidence_adds_up_who_moved() -> None:
    evidence = DistanceEvidence(TREE, space_of([0, 4, 10, 20]), told_apart=(ids(5, 6),))
    assert (evidence.moved, evidence.told_apart[0]) == ((), ids(5, 6))
    there = apply_all(TREE, [Graft(node(2), node(5))])
    once = evidence.after(there, [Graft(node(2), node(5))])
    assert once.moved == {2}
    both = apply_all(there, [Graft(node(0), node(6))])
    twice = once.after(both, [Graft(node(0), node(6))])
    assert twice.moved == {0, 2}
    assert twice.told_apart == (ids(5, 6),)
    assert twice.after(both, []).moved == {0, 2}
    assert twice.after(TREE, []).moved == {0, 2}
    assert evidence.moved == ()
