"""SHAPE as a whole, in a world of squares: it finds groups, and then is quiet; and prunes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.dmac import dmac
from sofa_fl.topology.edits import Graft, Merge, Prune, Split, apply_all
from sofa_fl.topology.shape import find_prunes
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from tests.topology.strategies import (
    ALL,
    WAYS,
    Case,
    Drawn,
    cases,
    client_sets,
    examples,
    ids,
    nested,
    node,
    random_names,
    relabelled,
    renamed_space,
    space_of,
    tree_of,
    trees,
)
from tests.topology.test_paper import random_tree
from tests.topology.worlds import Squares, blobs

SIZES = [5, 3, 8, 4]
CLIENTS = ids(*range(sum(SIZES)))
GROUPS = [list(range(end - size, end)) for size, end in zip(SIZES, np.cumsum(SIZES).tolist())]
FAR = 1e4  # about what the mean of all groups loses


def world(seed: int) -> Squares:
    return Squares(space_of(blobs(np.random.default_rng(seed), SIZES), linkage="average"), FAR)


@pytest.mark.parametrize("seed", range(20))
def test_a_right_tree_is_left_alone(seed: int) -> None:
    assert world(seed).shape(tree_of(GROUPS), ALL) == []
    first = dmac(world(seed).space)
    assert {frozenset(group) for group in GROUPS} <= client_sets(first)
    assert world(seed).shape(first, ALL) == []


@pytest.mark.parametrize("seed", range(5))
def test_misplaced_clients_are_put_back(seed: int) -> None:
    tree = tree_of([[5, *GROUPS[0][1:]], [0, *GROUPS[1][1:]], GROUPS[2], GROUPS[3]])
    edits = world(seed).shape(tree, ALL)
    assert edits == [Graft(node(5), node(22)), Graft(node(0), node(21))] or edits == [
        Graft(node(0), node(21)),
        Graft(node(5), node(22)),
    ]
    assert nested(apply_all(tree, edits)) == nested(tree_of(GROUPS))


@pytest.mark.parametrize("seed", range(5))
def test_mixed_clusters_are_split(seed: int) -> None:
    tree = tree_of([GROUPS[0] + GROUPS[1], GROUPS[2] + GROUPS[3]])
    edits = world(seed).shape(tree, ALL)
    assert all(isinstance(edit, Split) for edit in edits)
    assert nested(apply_all(tree, edits)) == nested(tree_of(GROUPS))


@pytest.mark.parametrize("seed", range(5))
def test_halves_of_a_group_are_merged(seed: int) -> None:
    tree = tree_of([GROUPS[0], GROUPS[1], GROUPS[2][:4], GROUPS[2][4:], GROUPS[3]])
    only_merges = world(seed).shape(tree, replace(ALL, operations=("merge",)))
    assert only_merges == [Merge(ids(23, 24), node(26))]
    assert nested(apply_all(tree, only_merges)) == nested(tree_of(GROUPS))
    healed, rounds = world(seed).at_rest(tree, ALL)
    assert nested(healed) == nested(tree_of(GROUPS))
    assert rounds <= 2, "they may get a cluster of their own first, from which they gain more"


HALVED = [half for g in GROUPS for half in (g[: len(g) // 2], g[len(g) // 2 :]) if len(half) > 1]
BROKEN: dict[str, Drawn] = {
    "flat": list(range(len(CLIENTS))),
    "merged": [GROUPS[0] + GROUPS[1], GROUPS[2] + GROUPS[3]],
    "all halved": [*HALVED, 5],
    "two exchanged": [[5, *GROUPS[0][1:]], [0, *GROUPS[1][1:]], GROUPS[2], GROUPS[3]],
    "one alone": [GROUPS[0][1:], *GROUPS[1:], 0],
    "too deep": [[GROUPS[0], GROUPS[1][:2]], [GROUPS[2], GROUPS[3], 7]],
}


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_tree_heals(kind: str, seed: int, every: int) -> None:
    tree, config = tree_of(BROKEN[kind]), replace(ALL, every=every)
    healed, rounds = world(seed).at_rest(tree, config)
    if kind == "too deep":  # levels that nobody gains from are pruned by mixing weights
        assert {frozenset(group) for group in GROUPS} <= client_sets(healed)
        idle = set(healed.clusters) - {healed.parent[NodeId(group[0])] for group in GROUPS}
        healed = apply_all(healed, find_prunes(healed, idle))
    assert nested(healed) == nested(tree_of(GROUPS))
    assert 1 <= rounds <= 4 * every


def test_in_a_random_tree_clients_find_to_their_own() -> None:
    of = {client: frozenset(group) for group in GROUPS for client in group}
    pure = whole = 0
    for seed in range(20):
        tree = random_tree(np.random.default_rng(seed), CLIENTS)
        rested, _ = world(seed).at_rest(tree, replace(ALL, every=2))
        homes = {client: rested.clients_of(rested.path(client)[-2]) for client in CLIENTS}
        pure += all(of[client].issuperset(home) for client, home in homes.items())
        whole += set(of.values()) <= client_sets(rested)
    assert pure >= 19
    assert whole >= 10


def test_a_client_that_moves_is_followed() -> None:
    moved = blobs(np.random.default_rng(0), SIZES)
    moved[0] = moved[-1] + np.random.default_rng(1).normal(size=moved.shape[1])
    drifted = Squares(space_of(moved, linkage="average"), FAR)
    healed, rounds = drifted.at_rest(tree_of(GROUPS), ALL)
    assert rounds == 1
    assert nested(healed) == nested(tree_of([GROUPS[0][1:], *GROUPS[1:3], [0, *GROUPS[3]]]))


def test_clients_that_were_not_heard_stay_and_do_no_harm() -> None:
    everybody = world(0)
    tree = tree_of([[5, *GROUPS[0][1:]], [0, *GROUPS[1][1:]], GROUPS[2], GROUPS[3]])
    some = Squares(everybody.space.of([c for c in CLIENTS if c not in (0, 8, 9)]), FAR)
    assert some.shape(tree, ALL) == [Graft(node(5), node(22))]


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
@pytest.mark.parametrize("place", [[0.1, -0.7], [1e7, 3.0], [0.0, 0.0]])
def test_equal_clients_end_in_a_flat_tree(metric, linkage, place: list[float]) -> None:  # type: ignore[no-untyped-def]
    """Rounding in the means must not look like structure."""
    space = space_of([place] * 8, [3, 1, 7, 1, 1, 9, 2, 5], metric, linkage)
    flat = flat_tree(space.clients)
    assert Squares(space).shape(flat, ALL) == []
    rested, _ = Squares(space).at_rest(tree_of([[0, 1], [2, 3], [4, 5], [6, 7]]), ALL)
    assert nested(rested) == nested(flat)


def test_noise_is_no_group() -> None:
    """What clients gain by a tighter model of their own noise is less than what others give."""
    flat = 0
    for seed in range(20):
        space = space_of(np.random.default_rng(seed).normal(size=(30, 200)), linkage="average")
        unit = 2 * space.scale**2
        flat += Squares(space, unit).shape(flat_tree(space.clients), ALL) == []
    assert flat >= 19


@examples(60)
@given(cases(ties=False), st.sampled_from([1e-3, 0.1, 1.0, 30.0]))
def test_relabelling_the_clients_relabels_the_tree(case: Case, unit: float) -> None:
    """If all look around in every round: whose turn it is goes by name."""
    config = replace(ALL, nearest=20)
    rename = random_names(case.tree.clients, case.rng)
    tree = relabelled(case.tree, rename, case.rng)
    again = Squares(renamed_space(case.space, rename, tree.clients), unit)
    before = apply_all(case.tree, Squares(case.space, unit).shape(case.tree, config))
    after = apply_all(tree, again.shape(tree, config))
    assert nested(after) == nested(before, rename)


@examples(100)
@given(cases(ties=True, hostile=True), st.sampled_from([1e-3, 0.1, 1.0, 30.0]))
def test_the_edits_lead_to_a_compact_tree_of_all_clients(case: Case, unit: float) -> None:
    edits = Squares(case.space, unit).shape(case.tree, ALL)
    after = apply_all(case.tree, edits)
    assert after.is_compact
    assert after.members == case.tree.members


def test_clusters_with_one_child_are_pruned() -> None:
    tree = tree_of([[[0, 1]], [2], 3])
    assert set(find_prunes(tree)) == {Prune(node(5)), Prune(node(7))}
    assert nested(apply_all(tree, find_prunes(tree))) == nested(tree_of([[0, 1], 2, 3]))
    assert find_prunes(tree_of([[0, 1], 2])) == []
    assert find_prunes(tree_of(0)) == []


def test_so_is_a_root_and_a_chain_over_one_client() -> None:
    assert find_prunes(tree_of([[[0, 1]]])) == [Prune(node(3)), Prune(node(2))]
    chain = tree_of([[[[0]]]])
    assert len(find_prunes(chain)) == 4
    assert apply_all(chain, find_prunes(chain)).root == 0


def test_clusters_without_clients_are_pruned_and_what_that_leaves_alone() -> None:
    links = {node(0): node(2), node(1): node(2), node(2): node(4), node(3): node(4)}
    tree = Tree({**links, node(4): None}, ids(0, 1), 5)
    assert find_prunes(tree) == [Prune(node(3)), Prune(node(4))]
    assert nested(apply_all(tree, find_prunes(tree))) == frozenset({0, 1})
    parent = {0: 4, 1: 4, 2: 5, 3: 5, 4: 9, 5: 9, 6: 9, 7: 6, 8: 6, 9: None}
    tree = Tree(
        {node(at): None if up is None else node(up) for at, up in parent.items()},
        ids(0, 1, 2, 3),
        10,
    )
    assert set(find_prunes(tree)) == {Prune(node(6)), Prune(node(7)), Prune(node(8))}


def test_a_cluster_that_nobody_gains_from_is_pruned_but_never_a_root_of_several() -> None:
    tree = tree_of([[0, 1, [2, 3]], [4, 5]])  # 6: 7 (8) and 9
    assert find_prunes(tree, ids(7)) == [Prune(node(7))]
    assert nested(apply_all(tree, find_prunes(tree, ids(7, 8)))) == nested(
        tree_of([0, 1, 2, 3, [4, 5]])
    )
    every = find_prunes(tree, ids(6, 7, 8, 9, 50, 0))
    assert nested(apply_all(tree, every)) == frozenset(range(6))
    alone = tree_of([[0, 1]])
    assert nested(apply_all(alone, find_prunes(alone, ids(3)))) == frozenset({0, 1})


@examples(200)
@given(st.data(), st.integers(1, 12))
def test_after_prunes_no_cluster_is_idle_or_has_fewer_than_two_children(
    data: st.DataObject, n: int
) -> None:
    tree = data.draw(trees(ids(*range(n)), compact=False))
    idle = data.draw(st.sets(st.sampled_from(sorted(tree.parent))))
    edits = find_prunes(tree, idle)
    after = apply_all(tree, edits)
    assert len(set(edits)) == len(edits)
    assert after.is_compact
    assert after.members == tree.members
    assert {c for c in after.clusters if c in idle} <= {after.root}
    assert find_prunes(after, idle) == []
    for cluster in after.clusters:  # nothing else changed
        assert set(after.clients_of(cluster)) == set(tree.clients_of(cluster))
    if tree.is_compact and not idle.intersection(tree.clusters[1:]):
        assert edits == []


def test_a_space_of_nobody_has_nothing_to_say() -> None:
    nobody = Space((), np.zeros((0, 2)), np.zeros(0))
    assert Squares(nobody).shape(tree_of([[0, 1], [2, 3]]), ALL) == []
