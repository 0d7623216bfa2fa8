"""What positions propose: which edits, and what their clients are asked about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.config import DmacConfig, Operation
from sofa_fl.topology.edits import Graft, Merge, Split, apply_all
from sofa_fl.topology.shape import Blend, Claim, Proposal, Proposer
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from tests.topology.strategies import ALL, Case, Draw, cases, examples, ids, node, space_of, tree_of
from tests.topology.worlds import all_edits, blobs

# 6 ── 7 ── 0, 1, 2
#   └─ 8 ── 3, 4, 5
TREE = tree_of([[0, 1, 2], [3, 4, 5]])
LINE = space_of([0.0, 1, 2, 10, 11, 12], linkage="average")


def proposed(
    operation: Operation, tree: Tree, space: Space, nearest: int = 3, **options: Any
) -> list[Proposal]:
    config = replace(ALL, operations=(operation,), nearest=nearest)
    return Proposer(tree, space, config, **options).all()


def moves(tree: Tree, space: Space, nearest: int = 3, **options: Any) -> set[tuple[int, int]]:
    found = proposed("graft", tree, space, nearest, **options)
    assert all(len(proposal.others) == 1 for proposal in found)
    return {(proposal.node, proposal.others[0]) for proposal in found}


def shares(blend: Blend) -> dict[int, float]:
    """The weight of each node in a blend, as a fraction of all."""
    total, each = sum(weight for _, weight in blend), dict[int, float]()
    for at, weight in blend:
        each[at] = each.get(at, 0.0) + weight / total
    return each


def test_a_client_may_move_up_or_to_another_cluster() -> None:
    assert moves(TREE, LINE) == {(c, onto) for c in range(6) for onto in (6, 8 if c < 3 else 7)}
    up, over = (p for p in proposed("graft", TREE, LINE) if p.node == 2)
    others = ((node(7), 3.0), (node(2), -1.0))
    assert list(up.claims) == [Claim(node(2), ((node(6), 6.0), (node(2), -1.0)), others)]
    assert list(over.claims) == [Claim(node(2), ((node(8), 1.0),), others)]
    assert all(claim.unseen for claim in (*up.claims, *over.claims))


# 9 ── 10 ── 11 ── 0, 1
#   │     └─ 12 ── 2, 3
#   ├─ 13 ── 14 ── 4, 5
#   │     └─ 15 ── 6, 7
#   └─ 8
DEEP = tree_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]], 8])
NINE = space_of(np.arange(9.0), linkage="average")


def test_a_client_may_move_to_any_cluster_and_a_cluster_to_one_on_the_level_of_its_parent() -> None:
    found = moves(DEEP, NINE, nearest=9)
    assert {onto for who, onto in found if who == 0} == {9, 10, 12, 13, 14, 15}
    assert {onto for who, onto in found if who == 8} == {10, 11, 12, 13, 14, 15}
    assert {onto for who, onto in found if who == 11} == {9, 13}
    assert {onto for who, onto in found if who == 15} == {9, 10}
    assert not {onto for who, onto in found if who in (9, 10, 13)}


def test_a_cluster_is_asked_about_mixtures_of_its_own_model() -> None:
    """Its clients have seen it, so their training samples do not count."""
    (over,) = (p for p in proposed("graft", DEEP, NINE) if (p.node, p.others) == (11, (13,)))
    assert {claim.client for claim in over.claims} == {0, 1}
    for claim in over.claims:
        assert not claim.unseen
        assert shares(claim.new) == {13: 0.5, 11: 0.5}
        assert shares(claim.old) == pytest.approx({10: 1.0, 11: 0.0})  # (2 · 10 − 11) / 2 + 11 / 2


def test_who_takes_nothing_from_the_root_must_not_lose_by_what_it_joins() -> None:
    tree = tree_of([[0, 1], [2, 3], 4, 5])
    space = space_of([0.0, 1, 8, 9, 3, 4], linkage="average")
    found = proposed("graft", tree, space, selfish={node(4), node(0)})
    for proposal in found:
        if proposal.node == 4:
            ((keep,),) = proposal.keeps
            (onto,) = proposal.others
            assert (shares(keep.new), shares(keep.old)) == ({onto: 0.5, 4: 0.5}, {4: 1.0})
            assert not keep.unseen
        else:
            assert not proposal.keeps, "only the root is left for that"


def test_who_is_better_off_with_a_constant_prediction_goes_to_the_root() -> None:
    found = proposed("graft", TREE, LINE, unsuited={node(2)})
    assert [p.others for p in found if any(c.new == () for c in p.claims)] == [(6,)]


def test_a_node_is_compared_with_the_nearest_clusters_and_those_above_it() -> None:
    tree = tree_of([[2 * k, 2 * k + 1] for k in range(6)])  # 12: 13 to 18
    space = space_of(np.repeat(np.arange(6.0) ** 1.1, 2), linkage="average")
    for nearest in (1, 2, 3):
        found = moves(tree, space, nearest)
        for client in range(12):
            own = client // 2
            order = sorted(range(6), key=lambda k: abs(k**1.1 - own**1.1))
            assert {onto - 13 for who, onto in found if who == client} - {-1} == set(
                order[1 : nearest + 1]
            )
            assert (client, 12) in found


def test_only_those_move_whose_turn_it_is() -> None:
    assert moves(TREE, LINE, due=lambda each: each == 4) == {(4, 6), (4, 7)}
    assert moves(TREE, LINE, due=lambda _: False) == set()


def test_who_has_no_position_is_neither_moved_nor_asked() -> None:
    some = Space(ids(0, 1, 3), np.array([[0.0], [1], [9]]), np.ones(3), linkage="average")
    assert moves(TREE, some) == {(0, 6), (0, 8), (1, 6), (1, 8)}, "3 has no others to lose"
    alone = Space(ids(0, 3), np.array([[0.0], [9]]), np.ones(2))
    assert moves(TREE, alone) == set()
    half = Space(ids(0, 1, 2), np.array([[0.0], [1], [2]]), np.ones(3))
    assert moves(TREE, half) == {(0, 6), (1, 6), (2, 6)}, "nobody of 8 was heard"
    assert proposed("merge", TREE, half) == []
    stranger = Space(ids(70), np.zeros((1, 1)), np.ones(1))
    for operation in ("graft", "merge", "split"):
        assert proposed(operation, TREE, stranger) == []


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_clients_have_no_proposals(n: int) -> None:
    space = space_of(np.arange(float(n)))
    assert Proposer(flat_tree(space.clients), space, ALL).all() == []


def test_siblings_may_merge_if_nobody_loses() -> None:
    (merge,) = proposed("merge", TREE, LINE)
    assert (merge.node, merge.others, list(merge.gains)) == (7, (8,), [])
    assert [{claim.client for claim in side} for side in merge.keeps] == [{0, 1, 2}, {3, 4, 5}]
    for claim in merge.claims:
        own = 7 if claim.client < 3 else 8
        assert claim.new == ((7, 3.0), (8, 3.0), (claim.client, -1.0))
        assert claim.old == ((own, 3.0), (claim.client, -1.0))


def test_where_one_client_of_a_cluster_is_heard_nobody_says_what_others_made() -> None:
    some = LINE.of(ids(0, 1, 2, 4))
    assert proposed("merge", TREE, some) == []
    assert len(proposed("merge", TREE, LINE.of(ids(0, 2, 4, 5)))) == 1


def test_neither_clients_nor_cousins_merge() -> None:
    line = space_of(np.arange(6.0))
    assert proposed("merge", tree_of([0, 1, 2, [3, 4, 5]]), line) == []
    cousins = tree_of([[[0, 1], 2], [[3, 4], 5]])  # 6: 7: 8, and 9: 10
    assert [(p.node, p.others) for p in proposed("merge", cousins, line)] == [(7, (9,))]


def test_a_cluster_is_compared_with_its_nearest_siblings() -> None:
    """Clusters on a line, ever farther from each other."""
    num, places = 9, np.cumsum(1.0 + 0.01 * np.arange(9))
    tree = tree_of([[2 * k, 2 * k + 1] for k in range(num)])
    found = proposed("merge", tree, space_of(np.repeat(places, 2), linkage="average"))
    pairs = {(p.node - tree.root - 1, p.others[0] - tree.root - 1) for p in found}
    for a in range(num):
        near = sorted(set(range(num)) - {a}, key=lambda b: abs(places[a] - places[b]))
        assert {(min(a, b), max(a, b)) for b in near[:3]} <= pairs
    assert len(pairs) == len(found) <= 3 * num
    assert pairs.isdisjoint({(0, num - 1), (0, 4)})


def test_a_pair_is_compared_when_its_turn_comes() -> None:
    for turn in range(5):
        found = proposed("merge", TREE, LINE, due=lambda each, turn=turn: each % 5 == turn)
        assert bool(found) == (turn == (7 + 8) % 5)


def parts(tree: Tree, space: Space, **options: Any) -> dict[int, set[frozenset[int]]]:
    found: dict[int, set[frozenset[int]]] = {}
    for proposal in proposed("split", tree, space, **options):
        found.setdefault(proposal.node, set()).add(frozenset(proposal.others))
    return found


GROUPS = space_of(blobs(np.random.default_rng(0), [4, 4, 4]), linkage="average")
FOURS = [frozenset(range(first, first + 4)) for first in (0, 4, 8)]


def test_groups_may_become_clusters_and_so_may_those_beside_them() -> None:
    found = parts(flat_tree(GROUPS.clients), GROUPS)
    beside = {frozenset(range(12)) - group for group in FOURS}
    assert found == {12: {*FOURS, *beside}}
    inside = parts(tree_of([[*range(8)], [*range(8, 12)]]), GROUPS)
    assert inside == {13: {FOURS[0], FOURS[1]}}
    (first, *_) = proposed("split", flat_tree(GROUPS.clients), GROUPS)
    for claim in first.claims:
        assert claim.unseen
        assert shares(claim.new) == pytest.approx(
            {**dict.fromkeys(sorted(first.others), 1 / 3), claim.client: 0.0}
        )
        assert claim.old == ((12, 12.0), (claim.client, -1.0))


def test_those_whom_the_model_suits_may_become_a_cluster() -> None:
    noise = space_of(np.random.default_rng(0).normal(size=(12, 500)), linkage="average")
    flat = flat_tree(noise.clients)
    some = frozenset(range(12)) - {3, 7}
    assert some not in parts(flat, noise).get(12, set())
    assert some in parts(flat, noise, unsuited=ids(3, 7))[12]
    assert frozenset({3}) not in parts(flat, noise, unsuited=set(range(12)) - {3}).get(12, set())


def test_clusters_may_become_a_cluster_and_clients_beside_them_are_not_among_them() -> None:
    """Two pairs are near each other; a part of clients and clusters is not proposed."""
    places = blobs(np.random.default_rng(0), [4, 2, 2])
    space = space_of(places, linkage="average")
    tree = tree_of([[0, 1], [2, 3], [4, 5], [6, 7]])  # 8: 9 to 12
    found = parts(tree, space)
    assert found == {8: {frozenset(ids(9, 10))}}
    (split,) = proposed("split", tree, space)
    assert {claim.client for claim in split.claims} == {0, 1, 2, 3}
    for claim in split.claims:
        own = 9 if claim.client < 2 else 10
        assert not claim.unseen
        assert shares(claim.new) == pytest.approx({19 - own: 0.5, own: 0.5})
    mixed = parts(tree_of([[0, 1], 2, 3, [4, 5], [6, 7]]), space)
    assert frozenset({2, 3, 9}) not in mixed.get(8, set())


def test_two_of_three_may_become_a_cluster() -> None:
    space = space_of(blobs(np.random.default_rng(0), [2, 1]), linkage="average")
    assert parts(flat_tree(space.clients), space, unsuited=ids(2)) == {3: {frozenset({0, 1})}}


def test_a_cluster_of_two_is_not_split() -> None:
    assert parts(tree_of([[0, 1], [2, 3]]), space_of([0, 90, 300, 390])) == {}


@st.composite
def proposers(draw: Draw) -> tuple[Case, Proposer]:
    """Any tree, also with empty and one-child clusters; clients may be missing, or strangers."""
    case = draw(cases(ties=True, hostile=True))
    heard = sorted(draw(st.sets(st.sampled_from(case.tree.clients), min_size=1)))
    space = case.space.of(heard)
    if draw(st.booleans()):
        rows = [*range(len(heard)), 0]
        clients = (*space.clients, node(1000))
        positions, weights = space.positions[rows], space.weights[rows]
        space = Space(clients, positions, weights, space.metric, space.linkage)
    nodes = st.sets(st.sampled_from(sorted(case.tree.parent)))
    increase = draw(st.sampled_from([None, None, 1.0, 1.3]))
    return case, Proposer(
        case.tree,
        space,
        replace(ALL, nearest=draw(st.integers(1, 4))),
        DmacConfig(increase=increase),
        selfish=draw(nodes),
        unsuited=draw(nodes),
    )


def weight_of(blend: Blend, path: Iterable[NodeId], proposer: Proposer) -> float:
    """By how much of a client's own model a blend has, as a fraction of what it weighs in it."""
    on_path = set(path)
    return sum(weight / proposer.weight(at) for at, weight in blend if at in on_path)


@examples(250)
@given(proposers())
def test_every_proposal_can_be_made_and_asked_about(drawn: tuple[Case, Proposer]) -> None:
    case, proposer = drawn
    tree = case.tree
    found = proposer.all()
    assert found == proposer.all(), "looking changes nothing"
    assert len(set(found)) == len(found)
    for proposal in found:
        (edit, *others) = all_edits(tree, [proposal])
        after = apply_all(tree, [edit])
        assert not others
        assert after.members == tree.members
        assert after.parent != tree.parent
        assert isinstance(
            edit, {"graft": Graft, "merge": Merge, "split": Split}[proposal.operation]
        )
        claims = list(proposal.claims)
        assert claims
        assert len(set(claims)) == len(claims)
        for claim in claims:
            assert claim.client in proposer.space.row_of
            path = tree.path(claim.client)
            for blend in filter(None, (claim.new, claim.old)):  # or a constant prediction
                assert sum(weight for _, weight in blend) > 0
                assert all(proposer.below[at] for at, _ in blend)
                if claim.unseen:
                    assert weight_of(blend, path, proposer) == pytest.approx(0, abs=1e-9)


@examples(100)
@given(cases(ties=False), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(case: Case, rng: Any) -> None:
    order = list(case.space.clients)
    rng.shuffle(order)
    shuffled = case.space.of(order)
    first, second = (Proposer(case.tree, each, ALL).all() for each in (case.space, shuffled))
    assert {(p.operation, p.node, frozenset(p.others)) for p in first} == {
        (p.operation, p.node, frozenset(p.others)) for p in second
    }


def test_only_the_operations_that_may_be_made_are_proposed() -> None:
    space, tree = GROUPS, tree_of([[*range(6)], [*range(6, 12)]])
    for some in ((), ("graft",), ("split", "merge"), ("graft", "merge", "split", "prune")):
        found = Proposer(tree, space, replace(ALL, operations=some)).all()
        assert {p.operation for p in found} == set(some) - {"prune"}
