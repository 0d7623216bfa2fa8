"""Clusters that a split told apart stay apart while their clients have the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.state import SofaState, after_edits, told_apart_after
from sofa_fl.topology.clustering.evidence import Evidence

from sofa_fl.data.concepts import Phase
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa import Sofa
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.edits import Edit, Graft, Leave, Merge, Prune, Split, apply_all
from sofa_fl.topology.tree import NodeId, Tree
from tests.methods.cases import after_rounds
from tests.methods.living import THREE_GROUPS, A, D, living
from tests.topology.strategies import ids

CLIENTS = ids(*range(9))
ROOT, X, Y, Z = ids(20, 21, 22, 23)
TREE = Tree(
    {ROOT: None, X: ROOT, Y: ROOT, Z: ROOT, **{c: (X, Y, Z)[c // 3] for c in CLIENTS}}, CLIENTS, 24
)
# In round 3, client 8 sees something new, and in round 5 client 9 comes.
FED = living(
    [
        Phase(0, THREE_GROUPS),
        Phase(3, {**THREE_GROUPS, 8: D}),
        Phase(5, {**THREE_GROUPS, 8: D, 9: A}),
    ]
)
ALL = (X, Y, Z)


def test_what_a_split_made_is_told_apart() -> None:
    edits: list[Edit] = [Graft(NodeId(0), Y), Split(ROOT, ALL, ((), (), ())), Prune(NodeId(30))]
    assert told_apart_after((), TREE, edits, FED.at(1)) == (ALL,)
    assert told_apart_after(((X, Y),), TREE, edits, FED.at(1)) == ((X, Y), ALL)
    assert told_apart_after(((X, Y),), TREE, (), FED.at(1)) == ((X, Y),)
    assert told_apart_after((), TREE, [Merge((X, Y), Z)], FED.at(1)) == ()


def test_one_part_is_apart_from_nothing() -> None:
    assert told_apart_after((), TREE, [Split(ROOT, (X,), ((),))], FED.at(1)) == ()


def test_a_cluster_that_is_gone_is_told_from_nothing() -> None:
    gone = apply_all(TREE, [*(Graft(c, X) for c in CLIENTS[3:6]), Prune(Y)])
    assert told_apart_after((ALL,), gone, (), FED.at(1)) == ((X, Z),)
    assert told_apart_after(((X, Y),), gone, (), FED.at(1)) == ()


@pytest.mark.parametrize(
    ("round", "left"), [(0, ALL), (1, ALL), (2, ALL), (3, (X, Y)), (4, ALL), (5, ALL)]
)
def test_a_cluster_with_new_data_may_be_another(round: int, left: Sequence[NodeId]) -> None:
    """As in round 3; who has new data then has the same in round 4."""
    assert told_apart_after((ALL,), TREE, (), FED.at(round)) == (left,)


def test_whoever_is_gone_has_no_new_data_and_whoever_comes_has() -> None:
    other = living([Phase(0, THREE_GROUPS), Phase(1, dict.fromkeys(range(8), A))]).at(1)
    assert told_apart_after(((Y, Z),), TREE, (), other) == ()
    stay = living([Phase(0, THREE_GROUPS), Phase(1, {c: THREE_GROUPS[c] for c in range(8)})])
    assert told_apart_after((ALL,), TREE, (), stay.at(1)) == (ALL,)
    parents = {**TREE.parent, NodeId(9): X}
    more = Tree(parents, (*CLIENTS, NodeId(9)), 24)
    assert told_apart_after((ALL,), more, (), FED.at(5)) == ((Y, Z),)
    assert told_apart_after((ALL,), more, (), FED.at(6)) == (ALL,)


def merging(shape: ShapeConfig | None = None) -> Sofa:
    return Sofa(SofaConfig(shape=shape or ShapeConfig()), SharingConfig(ratio=0))


def test_a_state_keeps_it_from_round_to_round_and_with_edits() -> None:
    """What it has of clusters that are there, until their data change."""
    method = merging(ShapeConfig(operations=()))
    state: SofaState = after_rounds(method, FED, 1)
    pairs = tuple(cluster for cluster in state.tree.clusters if cluster != state.tree.root)
    assert len(pairs) == 3
    state = replace(state, told_apart=(pairs,))
    home = state.tree.parent[NodeId(8)]
    same = tuple(cluster for cluster in pairs if cluster != home)
    assert after_edits(state, [Leave(NodeId(0))], FED.at(2)).told_apart == (pairs,)
    assert after_edits(state, [Leave(NodeId(0))], FED.at(3)).told_apart == (same,)
    state, _ = method.round(state, FED.at(2))
    assert state.told_apart == (pairs,)
    state, _ = method.round(state, FED.at(3))
    assert state.told_apart == (same,)


def test_splits_of_a_round_are_told_apart_from_then_on() -> None:
    """Rules see what was told apart before, not what the round itself tells apart."""
    seen = []

    def split(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
        seen.append(evidence.told_apart)
        first, *_ = (c for c in tree.clusters if c != tree.root)
        if len(seen) > 1:
            return []
        clients = tree.children[first]
        return [Split(first, ids(40, 41), (clients[:1], clients[1:]))]

    method = merging(ShapeConfig(operations=("split",)))
    method.rules = replace(method.rules, split=split)
    fed: Federation = living([Phase(0, THREE_GROUPS)])
    state = after_rounds(method, fed, 2)
    assert seen == [(), (ids(40, 41),)]
    assert state.told_apart == (ids(40, 41),)
