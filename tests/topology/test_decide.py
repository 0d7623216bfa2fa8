"""One test decides on all proposals; those that hold and can be made together are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.edits import Graft, Merge, Split, apply_all
from sofa_fl.topology.shape import (
    CLIENTS,
    SPREAD,
    Answer,
    Claim,
    Proposal,
    Proposer,
    decide,
    edits_of,
    find_prunes,
    is_less,
)
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from tests.topology.strategies import ALL, Case, cases, examples, ids, nested, node, tree_of
from tests.topology.test_proposer import proposers
from tests.topology.worlds import all_edits

CONFIG = ShapeConfig(least=0.02, chance=0.01)


def answers_of(gains: Sequence[float], samples: Sequence[int] | int = 100) -> list[Answer]:
    counts = [samples] * len(gains) if isinstance(samples, int) else samples
    return [Answer(1.0 - gain, 1.0, num) for gain, num in zip(gains, counts)]


def less(gains: Sequence[float], samples: Sequence[int] | int = 100, unit: float = 1.0) -> bool:
    return is_less(answers_of(gains, samples), unit, CONFIG)


@pytest.mark.parametrize("unit", [1.0, 3.0])
def test_a_gain_must_be_more_than_a_fraction_of_a_constants_loss(unit: float) -> None:
    many = 10**9
    assert not less([0.0199 * unit] * 4, many, unit)
    assert not less([0.0] * 4, many, unit)
    assert less([0.0201 * unit] * 4, many, unit)
    assert not less([-9.0] * 50, many, unit)
    free = replace(CONFIG, least=0.0)
    assert not is_less([Answer(1.0, 1.0, many)], unit, free), "no gain is none"


@pytest.mark.parametrize("unit", [1.0, 3.0])
@pytest.mark.parametrize("num", [1, 2, 10, 50])
@pytest.mark.parametrize("samples", [5, 100])
def test_a_gain_must_be_more_than_chance(num: int, samples: int, unit: float) -> None:
    """By Student's t, from what clients differ by and what single samples usually do."""
    rng = np.random.default_rng(num)
    deviations = rng.normal(size=num)
    deviations = 0.1 * (deviations - deviations.mean())
    degrees = num - 1 + CLIENTS
    variance = ((deviations**2).sum() / num + CLIENTS * SPREAD**2 / (num * samples)) / degrees
    edge = max(0.02, student.ppf(0.99, degrees) * variance**0.5)
    for times, expected in ((0.999, False), (1.001, True)):
        gains = unit * (edge * times + deviations)
        assert less(gains.tolist(), samples, unit) == expected


def test_samples_count() -> None:
    assert less([0.4, 0.39], [100, 100])
    assert less([0.4, -0.1], [10_000, 1])
    assert not less([0.4, -0.1], [1, 10_000])
    assert less([0.1, 0.1], [1000, 1000]) > less([0.1, 0.1], [10, 10])


GAINS = st.lists(st.floats(-2, 2), min_size=1, max_size=8)
COUNTS = st.integers(1, 1000)


@examples(300)
@given(GAINS, st.data(), st.floats(0, 3), st.floats(1, 5))
def test_if_all_gain_more_a_gain_is_a_gain_still(
    gains: list[float], data: st.DataObject, more: float, times: float
) -> None:
    counts = [data.draw(COUNTS) for _ in gains]
    if less(gains, counts):
        assert less([gain + more for gain in gains], counts)
        assert less([gain * times for gain in gains], counts)
        assert less(gains, [int(num * times) for num in counts]) or int(times) < times


@examples(300)
@given(st.floats(0.02, 1), st.lists(COUNTS, min_size=1, max_size=8), COUNTS)
def test_if_another_gains_as_much_a_gain_is_a_gain_still(
    gain: float, counts: list[int], more: int
) -> None:
    if less([gain] * len(counts), counts):
        assert less([gain] * (len(counts) + 1), [*counts, more])


@examples(100)
@given(GAINS, st.data())
def test_the_order_of_the_clients_does_not_matter(gains: list[float], data: st.DataObject) -> None:
    pairs = [(gain, data.draw(COUNTS)) for gain in gains]
    found = {less(*map(list, zip(*some))) for some in (pairs, pairs[::-1])}  # type: ignore[arg-type]
    assert len(found) == 1


# 6 ── 7 ── 0, 1, 2
#   └─ 8 ── 3, 4, 5
TREE = tree_of([[0, 1, 2], [3, 4, 5]])


def claim(client: int, about: int = 8) -> Claim:
    return Claim(node(client), ((node(about), 1.0),), ((node(6), 1.0),))


def graft(client: int, onto: int) -> Proposal:
    return Proposal("graft", node(client), ids(onto), (claim(client, onto),))


def merge(a: int, b: int, clients: Sequence[int] = (0, 3)) -> Proposal:
    return Proposal("merge", node(a), ids(b), keeps=tuple((claim(c, a + b),) for c in clients))


def split(cluster: int, *part: int) -> Proposal:
    return Proposal("split", node(cluster), ids(*part), tuple(claim(c, cluster) for c in part))


def decided(
    proposals: Sequence[Proposal], gains: Mapping[Claim, float], tree: Tree = TREE
) -> list[Proposal]:
    answers = {each: Answer(1.0 - gain, 1.0, 100) for each, gain in gains.items()}
    return decide(tree, proposals, answers, 1.0, CONFIG)


def test_proposals_that_hold_are_made_those_first_that_gain_most() -> None:
    some = [graft(0, 8), graft(1, 8), graft(3, 7), graft(4, 7)]
    gains = dict(zip([c for p in some for c in p.claims], (0.2, 0.01, 0.3, -0.3)))
    assert decided(some, gains) == [graft(3, 7), graft(0, 8)]
    assert decided([], {}) == []


def test_what_nobody_answered_for_is_not_made() -> None:
    assert decided([graft(0, 8)], {}) == []
    assert decided([split(7, 0, 1)], {}) == []
    assert decided([split(7, 0, 1)], {claim(0, 7): 0.5}) == [split(7, 0, 1)], "one of them did"
    assert decided([merge(7, 8)], {claim(0, 15): 0.0}) == [], "one side is silent"
    assert decided([Proposal("graft", node(0), ids(8))], {}) == [], "nothing was asked"


@pytest.mark.parametrize(("worse", "merges"), [(0.0099, True), (0.0101, False), (-0.5, True)])
@pytest.mark.parametrize("side", [0, 1])
def test_clusters_merge_if_neither_loses_more_than_a_trifle(
    worse: float, merges: bool, side: int
) -> None:
    both = merge(7, 8)
    gains = dict(zip(both.claims, (-worse, 0.0) if side else (0.0, -worse)))
    assert bool(decided([both], gains)) is merges


def test_a_loss_is_that_of_all_samples_of_a_side() -> None:
    both = Proposal("merge", node(7), ids(8), keeps=((claim(0), claim(1)), (claim(3),)))
    for many, merges in ((1, False), (9, True)):
        answers = {
            claim(0): Answer(1.05, 1.0, 1),
            claim(1): Answer(1.0, 1.0, many),
            claim(3): Answer(1.0, 1.0, 1),
        }
        assert bool(decide(TREE, [both], answers, 1.0, CONFIG)) is merges


CONFLICTS = [
    ([graft(0, 8), graft(0, 6)], "a node moves once"),
    ([graft(0, 8), split(7, 0, 1)], "what moves is in no part"),
    ([graft(0, 8), split(8, 3, 4)], "a cluster that is split takes nobody"),
    ([graft(0, 8), merge(7, 8)], "nor does one that merges"),
    ([merge(7, 8), split(7, 0, 1)], "a cluster that merges is not split"),
    ([split(7, 0, 1), split(7, 1, 2)], "a child is in one part"),
]


@pytest.mark.parametrize(("proposals", "why"), CONFLICTS, ids=[why for _, why in CONFLICTS])
def test_of_those_that_cannot_be_made_together_the_better_is_made(
    proposals: list[Proposal], why: str
) -> None:
    for order in (proposals, proposals[::-1]):
        gains = {c: 0.9 if each is order[0] else 0.5 for each in order for c in each.claims}
        chosen = decided(order[::-1], gains)
        assert chosen == [order[0]], why


def test_what_can_be_made_together_is() -> None:
    some = [graft(0, 8), graft(3, 7), graft(5, 6)]
    assert decided(some, {c: 0.5 for p in some for c in p.claims}) == some
    wide = flat_tree(ids(*range(6)))  # 6
    halves = [split(6, 0, 1), split(6, 2, 3)]
    assert decided(halves, {c: 0.5 for p in halves for c in p.claims}, wide) == halves
    inner = tree_of([[*range(5)], 5])  # 6: 7
    halves = [split(7, 0, 1), split(7, 2, 3)]
    assert decided(halves, {c: 0.5 for p in halves for c in p.claims}, inner) == halves


def test_equal_gains_go_by_the_order_of_the_proposals() -> None:
    some = [graft(0, 6), graft(0, 8)]
    assert decided(some, {c: 0.5 for p in some for c in p.claims}) == some[:1]


def test_edits_are_for_the_tree_as_it_is_by_then() -> None:
    some = [graft(2, 8), split(7, 0, 1)]
    assert edits_of(TREE, some, "graft") == [Graft(node(2), node(8))]
    assert edits_of(TREE, some, "split") == [Split(node(7), ids(9, 10), (ids(0, 1), ids(2)))]
    after = apply_all(TREE, edits_of(TREE, some, "graft"))
    assert edits_of(after, some, "split") == [], "who is left in 7 is a cluster already"
    assert edits_of(TREE, [merge(7, 8)], "merge") == [Merge(ids(7, 8), node(9))]
    merged = apply_all(TREE, [Merge(ids(7, 8), node(9))])
    assert edits_of(merged, [merge(7, 8), split(7, 0, 1)], "split") == []
    assert edits_of(TREE, [], "graft") == []


def test_parts_of_a_root_stay_below_it_and_those_of_a_cluster_take_its_place() -> None:
    wide = flat_tree(ids(*range(6)))
    assert nested(apply_all(wide, edits_of(wide, [split(6, 0, 1)], "split"))) == nested(
        tree_of([[0, 1], 2, 3, 4, 5])
    )
    tree = tree_of([[0, 1, 2, 3, 4], 5])  # 6: 7
    both = [split(7, 0, 1), split(7, 2, 3)]
    after = apply_all(tree, edits_of(tree, both, "split"))
    assert nested(after) == nested(tree_of([[0, 1], [2, 3], [4], 5]))
    assert nested(apply_all(after, find_prunes(after))) == nested(tree_of([[0, 1], [2, 3], 4, 5]))


def test_a_cluster_and_its_parent_are_split_in_one_round() -> None:
    """In any order: the inner one goes with the rest of the outer one."""
    tree = tree_of([[0, 1, [2, 3, 4, 5]], 6])  # 7: 8: 9
    for some in ([split(8, 0, 1), split(9, 2, 3)], [split(9, 2, 3), split(8, 0, 1)]):
        assert decided(some, {c: 0.5 for p in some for c in p.claims}, tree) == some
        after = apply_all(tree, all_edits(tree, some))
        assert nested(apply_all(after, find_prunes(after))) == nested(
            tree_of([[0, 1], [[2, 3], [4, 5]], 6])
        )


def random_answer(rng: np.random.Generator) -> Answer:
    new, old = rng.exponential(1.0, 2).tolist()
    return Answer(new, old, int(rng.integers(1, 100)))


@examples(250)
@given(proposers(), st.integers(0, 2**32 - 1))
def test_any_answers_give_edits_that_apply(drawn: tuple[Case, Proposer], seed: int) -> None:
    case, proposer = drawn
    tree, rng = case.tree, np.random.default_rng(seed)
    proposals = [p for p in proposer.all() if rng.random() < rng.choice([0.2, 1.0])]
    answers = {
        each: random_answer(rng)
        for each in dict.fromkeys(c for p in proposals for c in p.claims)
        if rng.random() < 0.9
    }
    config = replace(ALL, chance=0.4, least=0.0)
    chosen = decide(tree, proposals, answers, 0.1, config)
    assert set(chosen) <= set(proposals)
    assert len(set(chosen)) == len(chosen)
    moved = Counter[NodeId]()
    for proposal in chosen:
        moved.update(proposal.others if proposal.operation == "split" else [proposal.node])
        moved.update(proposal.others if proposal.operation == "merge" else [])
    assert max(moved.values(), default=0) <= 1, "no node moves twice"
    edits = all_edits(tree, chosen)
    used = set(tree.parent)
    after = tree
    for edit in edits:
        after = apply_all(after, [edit])
        new = set(after.parent) - used
        assert all(each >= tree.next_id for each in new)
        used |= set(after.parent)
    for proposal in chosen:
        if proposal.operation == "graft":
            assert after.parent[proposal.node] == proposal.others[0]
    idle = {each for each in after.parent if rng.random() < 0.2}
    pruned = apply_all(after, find_prunes(after, idle))
    assert pruned.members == tree.members
    assert pruned.is_compact
    assert idle.isdisjoint(set(pruned.clusters) - {pruned.root})
    kept = {c: frozenset(pruned.clients_of(c)) for c in pruned.clusters}
    assert all(clients == frozenset(after.clients_of(c)) for c, clients in kept.items())


@examples(100)
@given(proposers(), st.sampled_from([0.0, -1.0]))
def test_where_nobody_gains_nothing_moves(drawn: tuple[Case, Proposer], gain: float) -> None:
    """Clusters may still merge, where nobody loses."""
    case, proposer = drawn
    proposals = proposer.all()
    answers = {c: Answer(1.0 - gain, 1.0, 50) for p in proposals for c in p.claims}
    chosen = decide(case.tree, proposals, answers, 1.0, replace(ALL, least=0.0))
    assert {p.operation for p in chosen} <= ({"merge"} if gain == 0 else set())
    assert edits_of(case.tree, chosen, "graft") == edits_of(case.tree, chosen, "split") == []


@examples(150)
@given(cases(ties=True), st.integers(0, 2**32 - 1), st.floats(0.01, 2))
def test_a_proposal_that_holds_still_holds_if_its_clients_gain_more(
    case: Case, seed: int, more: float
) -> None:
    """Its rank does not fall, either: what it was better than does not come in its way."""
    rng = np.random.default_rng(seed)
    proposals = Proposer(case.tree, case.space, ALL).all()
    claims = dict.fromkeys(c for p in proposals for c in p.claims)
    answers = {each: random_answer(rng) for each in claims}
    chosen = decide(case.tree, proposals, answers, 1.0, CONFIG)
    if not chosen:
        return
    best = chosen[int(rng.integers(len(chosen)))]
    for each in best.claims:
        answers[each] = replace(answers[each], new=answers[each].new - more)
    shared = [p for p in proposals if p != best and set(p.claims) & set(best.claims)]
    if not shared:
        assert best in decide(case.tree, proposals, answers, 1.0, CONFIG)


@examples(60)
@given(st.integers(0, 2**32 - 1))
def test_a_world_and_its_mirror_image_change_alike(seed: int) -> None:
    """Clients 3, 4, 5 of one cluster are to the other what 0, 1, 2 are, and answer the same."""
    rng = np.random.default_rng(seed)
    twin = {node(a): node(b) for a, b in ((0, 3), (1, 4), (2, 5), (7, 8), (6, 6))}
    twin |= {b: a for a, b in twin.items()}
    some = [graft(c, onto) for c in range(3) for onto in (8, 6)]
    some += [replace_names(each, twin) for each in some]
    gains = {c: float(rng.normal()) for p in some[:6] for c in p.claims}
    gains |= {replace_claim(c, twin): gain for c, gain in gains.items()}
    chosen = decided(some, gains)
    assert set(chosen) == {replace_names(each, twin) for each in chosen}


def replace_claim(each: Claim, names: Mapping[NodeId, NodeId]) -> Claim:
    new, old = (tuple((names[at], w) for at, w in blend) for blend in (each.new, each.old))
    return Claim(names[each.client], new, old, each.unseen)


def replace_names(each: Proposal, names: Mapping[NodeId, NodeId]) -> Proposal:
    claims = tuple(replace_claim(c, names) for c in each.gains)
    others = tuple(names[other] for other in each.others)
    return Proposal(each.operation, names[each.node], others, claims)
