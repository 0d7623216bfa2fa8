"""Our rules of SHAPE: every edit where it must be made, and where it must not, by a hair."""

from __future__ import annotations

import numpy as np
import pytest

from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.clustering.default_edits import (
    descend,
    find_grafts,
    find_merges,
    foresee_grafts,
    is_due,
    is_loss,
)
from sofa_fl.topology.clustering.evidence import DistanceEvidence
from sofa_fl.topology.clustering.shape import find_prunes
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, apply_all
from tests.topology.strategies import ALL, ids, nested, node, only, space_of, tree_of
from tests.topology.worlds import MadeUp, made_up

# 6 ── 7 ── 0, 1, 2
#   └─ 8 ── 3, 4, 5
TREE = tree_of([[0, 1, 2], [3, 4, 5]])
LINE = [0.0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize("unit", [1.0, 3.0])
@pytest.mark.parametrize(("there", "moves"), [(0.4501, False), (0.4499, True)])
def test_a_client_moves_for_a_twentieth_of_the_blind_loss(
    unit: float, there: float, moves: bool
) -> None:
    evidence = made_up(LINE, {(2, 8): there * unit}, 0.5 * unit)
    evidence.blind_loss = unit
    assert find_grafts(TREE, evidence, ALL) == ([Graft(node(2), node(8))] if moves else [])
    assert all(more for _, more in evidence.asked), "few held-out samples are too few"


def test_a_gain_of_just_that_is_too_small() -> None:
    for there, moves in ((9.0, False), (8.999, True)):
        evidence = made_up(LINE, {(2, 8): there}, 10.0)
        evidence.blind_loss = 20.0
        assert bool(find_grafts(TREE, evidence, ALL)) is moves


def test_a_cluster_that_loses_more_attracts_nobody() -> None:
    assert find_grafts(TREE, made_up(LINE, {(2, 8): 0.9}), ALL) == []


def test_parents_are_foreseen_and_then_the_first_clusters_are_asked_about_at_once() -> None:
    """Every call is an exchange of messages."""
    evidence = made_up(LINE, {})
    foreseen = foresee_grafts(TREE, evidence, ALL)
    below = {7: ids(0, 1, 2), 8: ids(3, 4, 5)}
    parents = {(c, tuple(k for k in some if k != c)) for some in below.values() for c in some}
    assert set(foreseen) == parents
    evidence.losses(foreseen, more=True)
    find_grafts(TREE, evidence, ALL)
    first = {(node(c), ids(8 if c < 3 else 7)) for c in range(6)}
    assert evidence.calls[1:] == [{(question, True) for question in first}]
    evidence = made_up([0.0] * 9, {})
    evidence.losses(foresee_grafts(DEEP, evidence, ALL), more=True)
    find_grafts(DEEP, evidence, ALL)
    assert len(evidence.calls) == 1 + 2, "one for each level below the root"


@pytest.mark.parametrize("unit", [1.0, 3.0])
def test_clients_that_cannot_gain_enough_are_not_asked_about_other_clusters(unit: float) -> None:
    """No model loses less than nothing: who loses less than a twentieth cannot gain that much."""
    evidence = MadeUp(space_of(LINE), lambda c, _: (0.0501 if c == 4 else 0.05) * unit, unit)
    assert find_grafts(TREE, evidence, ALL) == []
    assert evidence.calls[1:] == [{((node(4), ids(7)), True)}]


def test_nothing_is_foreseen_where_no_client_can_move() -> None:
    assert foresee_grafts(flat_tree(ids(*range(6))), made_up(LINE, {}), ALL) == []
    turns = [foresee_grafts(TREE, made_up(LINE, {}), ShapeConfig(every=k)) for k in (1, 2)]
    assert [len(foreseen) for foreseen in turns] == [6, 3]


# 9 ── 10 ── 11 ── 0, 1
#   │     └─ 12 ── 2, 3
#   ├─ 13 ── 14 ── 4, 5
#   │     └─ 15 ── 6, 7
#   └─ 8
DEEP = tree_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]], 8])


@pytest.mark.parametrize(("below", "onto"), [(0.29, 15), (0.31, 13)])
def test_a_client_goes_down_where_it_loses_least_and_to_the_best_on_the_way(
    below: float, onto: int
) -> None:
    """Below 10, where nothing would be lost, it does not look: 13 loses less."""
    losses = {(8, 10): 0.4, (8, 13): 0.3, (8, 11): 0.0, (8, 14): 0.35, (8, 15): below}
    evidence = made_up([0.0] * 9, losses)
    assert find_grafts(DEEP, evidence, ALL) == [Graft(node(8), node(onto))]
    assert (8, (11,)) not in evidence.models_asked


def test_the_way_down_may_lead_to_a_cluster_that_is_worse_than_the_parent() -> None:
    """Client 0's parent is 11; 13 loses less than 10, and what is below 13 loses least."""
    losses = {ids(1): 0.3, ids(1, 2, 3): 0.5, ids(13): 0.4, ids(14): 0.2}

    def grafts() -> list[Edit]:
        space = space_of([0.0] * 9)
        evidence = MadeUp(space, lambda c, nodes: losses.get(nodes, 0.5) if c == 0 else 0.5)
        return find_grafts(DEEP, evidence, ALL)

    assert grafts() == [Graft(node(0), node(14))]
    losses[ids(14)] = 0.26
    assert grafts() == []


def test_a_client_never_moves_to_a_cluster_above_its_own() -> None:
    """Client 0's parent is 11, and 10 is above that; 12 is beside it."""
    losses = {ids(1): 0.5, ids(1, 2, 3): 0.1, ids(12): 0.46}

    def grafts() -> list[Edit]:
        space = space_of([0.0] * 9)
        evidence = MadeUp(space, lambda c, nodes: losses.get(nodes, 0.9) if c == 0 else 0.5)
        found = find_grafts(DEEP, evidence, ALL)
        assert (0, (1, 2, 3)) in evidence.models_asked, "the way still leads through it"
        return found

    assert grafts() == []
    losses[ids(12)] = 0.44
    assert grafts() == [Graft(node(0), node(12))], "a worse one than 10, but another"


def test_where_all_clusters_on_the_way_are_above_a_client_it_stays() -> None:
    """5 is above all but 3; 0 and 1, in 6, would gain by it, and so would 3."""
    tree = tree_of([[[0, 1], 2], 3])  # 4: 5 and 3; 5: 6 and 2
    evidence = MadeUp(space_of([0.0] * 4), lambda c, nodes: 0.1 if len(nodes) > 1 else 0.5)
    assert find_grafts(tree, evidence, ALL) == []
    evidence = MadeUp(space_of([0.0] * 4), lambda c, nodes: 0.1 if nodes == ids(6) else 0.5)
    found = find_grafts(tree, evidence, ALL)
    assert found == [Graft(node(2), node(6)), Graft(node(3), node(6))], "down they go"


@pytest.mark.parametrize(("num", "moves"), [(2, True), (10, True), (11, False)])
def test_one_of_few_is_judged_by_what_the_others_made(num: int, moves: bool) -> None:
    """The cluster's model has learned the client's own samples, and so loses nothing for it."""
    tree = tree_of([list(range(num)), [num, num + 1]])
    own, other = (tree.parent[node(c)] for c in (0, num))

    def loss(client: int, nodes: tuple[NodeId, ...]) -> float:
        return {(own,): 0.0, (other,): 0.2}.get(nodes, 0.5) if client == 0 else 0.0  # type: ignore[arg-type]

    evidence = MadeUp(space_of([0.0] * (num + 2)), loss)
    assert find_grafts(tree, evidence, ALL) == ([Graft(node(0), other)] if moves else [])  # type: ignore[arg-type]
    of_others = (0, tuple(range(1, num)))
    assert (of_others in evidence.models_asked) == moves


def test_a_client_without_others_is_judged_by_its_cluster() -> None:
    tree = tree_of([[0, 1], [2, 3]])
    space = Space(ids(0, 2, 3), np.zeros((3, 1)), np.ones(3))
    evidence = MadeUp(space, lambda client, nodes: 0.3)
    assert find_grafts(tree, evidence, ALL) == []
    assert {nodes for client, nodes in evidence.models_asked if client == 0} == {(5,), (6,)}


def test_of_equally_good_clusters_the_first_is_taken() -> None:
    tree = tree_of([[0, 1], [2, 3], [4, 5], 6])  # 7: 8, 9 and 10
    losses = {(6, 8): 0.3, (6, 9): 0.2, (6, 10): 0.2}
    assert find_grafts(tree, made_up([0.0] * 7, losses), ALL) == [Graft(node(6), node(9))]


def test_a_client_beside_the_only_cluster_below_the_root_may_enter_it() -> None:
    evidence = made_up([0.0] * 3, {(2, 4): 0.1})
    assert find_grafts(tree_of([[0, 1], 2]), evidence, ALL) == [Graft(node(2), node(4))]


def test_where_there_is_one_cluster_nobody_is_asked() -> None:
    evidence = made_up(LINE, {})
    assert find_grafts(flat_tree(ids(*range(6))), evidence, ALL) == []
    assert find_grafts(flat_tree(ids(0)), evidence, ALL) == []
    assert evidence.asked == []


def test_who_has_no_position_cannot_be_asked() -> None:
    heard = Space(ids(0, 3), np.zeros((2, 1)), np.ones(2))
    evidence = MadeUp(heard, lambda client, nodes: 0.5 if client in (0, 1, 2) else 0.1)
    assert find_grafts(TREE, evidence, ALL) == []
    assert {client for client, _ in evidence.models_asked} == {0, 3}
    assert find_merges(TREE, evidence, ALL) == [Merge(ids(7, 8), node(9))]
    assert {client for client, _ in evidence.models_asked} == {0, 3}


def test_only_those_move_whose_turn_it_is() -> None:
    """Everybody would; the sum of id and round is a multiple of three."""
    evidence = MadeUp(space_of(LINE), lambda client, nodes: float(nodes[0] in (0, 1, 7)))
    for round, clients in ((0, (0,)), (1, (2,)), (2, (1,)), (3, (0,))):
        evidence.round = round
        grafts = find_grafts(TREE, evidence, only("graft", every=3))
        assert grafts == [Graft(node(client), node(8)) for client in clients]


def test_turns_come_round() -> None:
    evidence = made_up(LINE, {})
    for every in (1, 4, 5):
        config = ShapeConfig(every=every)
        for who in range(7):
            turns = []
            for evidence.round in range(20):
                turns.append(is_due(node(who), evidence, config))
            assert sum(turns) == 20 / every
            assert turns[(-who) % every]


def exchange(extra: dict[tuple[int, int], float], own: float = 0.3) -> MadeUp:
    """By its own cluster's model a client loses `own`; by another's, so much more; else a lot."""
    return MadeUp(
        space_of([0.0, 0.1, 1, 1.1, 2.5, 2.6]),
        lambda client, nodes: own + (0 if nodes[0] == 7 + client // 2 else extra[client, nodes[0]]),
    )


# 6 ── 7 ── 0, 1
#   ├─ 8 ── 2, 3
#   └─ 9 ── 4, 5
PAIRS = tree_of([[0, 1], [2, 3], [4, 5]])
FAR = {(c, model): 0.5 for c in range(6) for model in (7, 8, 9)}


@pytest.mark.parametrize(("more", "merges"), [(0.0099, True), (0.0101, False), (-0.5, True)])
@pytest.mark.parametrize("side", [(0, 1), (2, 3)])
def test_siblings_merge_if_an_exchange_costs_neither_more_than_a_trifle(
    more: float, merges: bool, side: tuple[int, int]
) -> None:
    """Both clients of one side lose `more`, those of the other nothing."""
    extra = FAR | {(c, 8): 0.0 for c in (0, 1)} | {(c, 7): 0.0 for c in (2, 3)}
    extra |= {(c, 8 if c < 2 else 7): more for c in side}
    evidence = exchange(extra)
    expected = [Merge(ids(7, 8), node(10))] if merges else []
    assert find_merges(PAIRS, evidence, ALL) == expected
    assert not any(more for _, more in evidence.asked), "training samples favour one's own"


def test_a_small_loss_that_may_be_chance_keeps_nobody_apart() -> None:
    extra = FAR | {(0, 8): 0.2, (1, 8): -0.1, (2, 7): 0.0, (3, 7): 0.0}
    assert find_merges(PAIRS, exchange(extra), ALL) == [Merge(ids(7, 8), node(10))]
    evidence = exchange(extra)
    evidence.blind_loss = 0.4  # of which 0.05 is more than a tenth
    assert find_merges(PAIRS, evidence, ALL) == []
    evidence.counts = {1: 4}  # then the mean is -0.04
    assert find_merges(PAIRS, evidence, ALL) == [Merge(ids(7, 8), node(10))]


def test_those_who_lose_least_merge_first_and_each_once() -> None:
    """The worse side of a pair counts: 0.006 of 7 and 8, 0.004 of 8 and 9."""
    extra = FAR | {(0, 8): 0.006, (1, 8): 0.006, (2, 7): -0.1, (3, 7): -0.1}
    extra |= {(c, 9): 0.004 for c in (2, 3)} | {(c, 8): 0.004 for c in (4, 5)}
    assert find_merges(PAIRS, exchange(extra), ALL) == [Merge(ids(8, 9), node(10))]
    extra |= {(c, 9): 0.007 for c in (2, 3)}
    assert find_merges(PAIRS, exchange(extra), ALL) == [Merge(ids(7, 8), node(10))]


def test_the_cost_is_by_samples() -> None:
    extra = FAR | {(0, 8): 0.009, (1, 8): 0.0, (2, 7): 0.0, (3, 7): 0.0}
    extra |= {(c, 9): 0.004 for c in (2, 3)} | {(c, 8): 0.004 for c in (4, 5)}
    evidence = exchange(extra)
    assert find_merges(PAIRS, evidence, ALL) == [Merge(ids(8, 9), node(10))]
    evidence.counts = {1: 9}
    assert find_merges(PAIRS, evidence, ALL) == [Merge(ids(7, 8), node(10))]


def test_several_merges_get_ids_one_after_the_other() -> None:
    tree = tree_of([[0, 1], [2, 3], [4, 5], [6, 7]])  # 8: 9 to 12
    evidence = made_up([0, 0, 1, 1, 9, 9, 9.5, 9.5], {})
    assert find_merges(tree, evidence, ALL) == [
        Merge(ids(9, 10), node(13)),
        Merge(ids(11, 12), node(14)),
    ]


def test_all_that_merged_before_is_remembered() -> None:
    """11 may merge with 12 and, at a cost, with 15; 13 merges with 14 in between."""
    tree = tree_of([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]])  # 10: 11 to 15
    losses = {(c, 15): 0.504 for c in (0, 1)} | {(c, 11): 0.504 for c in (8, 9)}
    losses |= {(c, model): 9.0 for c in (8, 9) for model in (12, 13, 14)}
    found = find_merges(tree, made_up([0.0] * 10, losses), ALL)
    assert found == [Merge(ids(11, 12), node(16)), Merge(ids(13, 14), node(17))]


SAME = {(c, model): 0.0 for c in range(6) for model in (7, 8, 9)}


@pytest.mark.parametrize("order", [(7, 8), (8, 7)])
def test_clusters_that_were_told_apart_are_not_merged_and_others_are(
    order: tuple[int, int],
) -> None:
    """All three could use each other's models; the nearest two would merge first."""
    evidence = exchange(SAME)
    assert find_merges(PAIRS, evidence, ALL) == [Merge(ids(7, 8), node(10))]
    evidence = exchange(SAME)
    evidence.told_apart = (ids(*order),)
    assert find_merges(PAIRS, evidence, ALL) == [Merge(ids(7, 9), node(10))]
    assert {m for c, m in evidence.models_asked if c < 2} == {(7,), (9,)}, "8 is not asked about"
    backward = Tree(dict(reversed(list(PAIRS.parent.items()))), PAIRS.clients, PAIRS.next_id)
    assert backward.children[backward.root] == (9, 8, 7)
    assert find_merges(backward, evidence, ALL) == [Merge(ids(9, 7), node(10))]


def test_of_those_told_apart_by_one_split_no_two_are_merged() -> None:
    evidence = exchange(SAME)
    evidence.told_apart = (ids(7, 8, 9),)
    assert find_merges(PAIRS, evidence, ALL) == []
    assert evidence.asked == []
    evidence.told_apart = (ids(8, 9), ids(3, 7), ids(7, 20))
    assert find_merges(PAIRS, evidence, ALL) == [Merge(ids(7, 8), node(10))], "not by one split"
    evidence.told_apart = (ids(8, 9), ids(7, 8))
    assert find_merges(PAIRS, evidence, ALL) == [Merge(ids(7, 9), node(10))]
    evidence.told_apart = (ids(8, 9), ids(7, 8), ids(9, 7))
    assert find_merges(PAIRS, evidence, ALL) == []


def test_neither_clients_nor_cousins_merge() -> None:
    evidence = made_up(LINE, {})
    for tree in (tree_of([0, 1, 2, [3, 4, 5]]), tree_of([[[0, 1], 2], 3, 4, 5])):
        assert find_merges(tree, evidence, ALL) == []
    cousins = tree_of([[[0, 1], 2], [[3, 4], 5]])  # 6: 7: 8, and 9: 10
    assert find_merges(cousins, evidence, ALL) == [Merge(ids(7, 9), node(11))]


def test_a_pair_is_compared_when_its_turn_comes() -> None:
    """7 and 8 every fifth round, as 15 and the round sum up to a multiple of five."""
    for round in range(10):
        evidence = made_up(LINE, {})
        evidence.round = round
        assert bool(find_merges(TREE, evidence, only("merge", every=5))) == (round % 5 == 0)
        assert bool(evidence.asked) == (round % 5 == 0)


def test_a_cluster_is_compared_with_its_three_nearest_siblings() -> None:
    """Clusters on a line, ever farther from each other."""
    num = 9
    tree = tree_of([[2 * k, 2 * k + 1] for k in range(num)])
    places = np.repeat(np.cumsum(1.0 + 0.01 * np.arange(num)), 2)
    evidence = made_up(places.tolist(), {})
    find_merges(tree, evidence, ALL)
    first = tree.root + 1
    pairs = {(c // 2, model[0] - first) for c, model in evidence.models_asked}
    for a in range(num):
        near = sorted(set(range(num)) - {a}, key=lambda b: abs(places[2 * a] - places[2 * b]))
        assert {(a, b) for b in near[:3]} <= pairs
    assert len([pair for pair in pairs if pair[0] < pair[1]]) <= 3 * num
    assert (0, num - 1) not in pairs
    assert (0, 4) not in pairs


@pytest.mark.parametrize("unit", [1.0, 7.0])
class TestIsLoss:
    """Of clients, by how much more each one loses; a trifle is 0.01."""

    def lost(self, unit: float, more: list[float], counts: list[float] | None = None) -> bool:
        numbers = np.array(counts or [1.0] * len(more))
        return is_loss(unit * np.array(more), numbers, unit)

    def test_below_a_trifle_it_is_none(self, unit: float) -> None:
        assert not self.lost(unit, [0.0099] * 50)
        assert self.lost(unit, [0.0101] * 50)
        assert not self.lost(unit, [-9.0] * 50)

    def test_above_much_it_always_is(self, unit: float) -> None:
        assert not self.lost(unit, [0.0999])
        assert self.lost(unit, [0.1001])
        assert self.lost(unit, [9.0, -8.7])
        assert not self.lost(unit, [9.0, -8.9])

    def test_between_it_must_be_two_standard_errors(self, unit: float) -> None:
        """Of n numbers, half of them d above the mean and half below, that is 2 d / √(n − 1)."""
        for n in (2, 10, 50):
            d = 0.05 * (n - 1) ** 0.5 / 2
            for times, expected in ((0.99, True), (1.01, False)):
                more = [0.05 + times * d, 0.05 - times * d] * (n // 2)
                assert self.lost(unit, more) == expected

    def test_on_the_edge(self, unit: float) -> None:
        assert not self.lost(unit, [0.01, 0.01])
        assert self.lost(unit, [0.1, 0.1])
        assert not self.lost(unit, [1 / 32, 3 / 32]), "just two standard errors"

    def test_one_client_alone_says_nothing_small(self, unit: float) -> None:
        assert not self.lost(unit, [0.09])
        assert self.lost(unit, [0.09, 0.09])

    def test_samples_count(self, unit: float) -> None:
        assert self.lost(unit, [0.3, 0.0], [1, 1])
        assert not self.lost(unit, [0.3, 0.0], [1, 20])
        assert self.lost(unit, [0.06, 0.05, 0.0], [9, 9, 1])
        assert not self.lost(unit, [0.06, 0.05, 0.0], [9, 1, 9])


def prunes_of(tree: Tree) -> list[Prune]:
    evidence = DistanceEvidence(tree, space_of(np.zeros(len(tree.clients))))
    found = find_prunes(tree, evidence, ALL)
    assert all(isinstance(edit, Prune) for edit in found)
    return found  # type: ignore[return-value]


def test_clusters_with_one_child_are_pruned() -> None:
    tree = tree_of([[[0, 1]], [2], 3])
    assert set(prunes_of(tree)) == {Prune(node(5)), Prune(node(7))}
    assert nested(apply_all(tree, prunes_of(tree))) == nested(tree_of([[0, 1], 2, 3]))
    assert prunes_of(tree_of([[0, 1], 2])) == []


def test_so_is_a_root_and_a_chain_over_one_client() -> None:
    assert prunes_of(tree_of([[[0, 1]]])) == [Prune(node(3)), Prune(node(2))]
    chain = tree_of([[[[0]]]])
    assert len(prunes_of(chain)) == 4
    assert apply_all(chain, prunes_of(chain)).root == 0


def test_clusters_without_clients_are_pruned_and_what_that_leaves_alone() -> None:
    links = {node(0): node(2), node(1): node(2), node(2): node(4), node(3): node(4)}
    tree = Tree({**links, node(4): None}, ids(0, 1), 5)
    assert prunes_of(tree) == [Prune(node(3)), Prune(node(4))]
    assert nested(apply_all(tree, prunes_of(tree))) == frozenset({0, 1})
    parent = {0: 4, 1: 4, 2: 5, 3: 5, 4: 9, 5: 9, 6: 9, 7: 6, 8: 6, 9: None}
    tree = Tree(
        {node(at): None if up is None else node(up) for at, up in parent.items()},
        ids(0, 1, 2, 3),
        10,
    )
    assert set(prunes_of(tree)) == {Prune(node(6)), Prune(node(7)), Prune(node(8))}


def test_below_a_client_alone_there_is_no_way_down() -> None:
    assert descend(tree_of(0), ids(0), lambda pairs: [0.0] * len(pairs)) == {node(0): {}}
