"""SHAPE as a whole: always a tree and a history of it; it finds groups, and then is quiet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.experiment.storage.events import count_edits
from sofa_fl.topology.clustering import default_splits
from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.clustering.default_edits import find_grafts, find_merges
from sofa_fl.topology.clustering.default_splits import find_splits
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.evidence import DistanceEvidence, moved_between
from sofa_fl.topology.clustering.shape import (
    default_tree_rules,
    find_prunes,
    prepare,
    shape,
)
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from sofa_fl.topology.edits import Graft, Merge, apply_all
from tests.topology.strategies import (
    ALL,
    OPERATIONS,
    WAYS,
    Case,
    Draw,
    cases,
    client_sets,
    examples,
    ids,
    nested,
    only,
    random_names,
    relabelled,
    renamed_space,
    space_of,
    tree_of,
)
from tests.topology.test_paper_edits import random_tree
from tests.topology.worlds import blobs

BLIND = st.sampled_from([1.0, 1e-3, 0.1, 30.0])


@st.composite
def worlds(
    draw: Draw, *, ties: bool = True, hostile: bool = False
) -> tuple[Case, DistanceEvidence]:
    """A tree over clients somewhere, and losses that are squared distances."""
    case = draw(cases(ties=ties, hostile=hostile))
    return case, DistanceEvidence(case.tree, case.space, draw(BLIND), draw(st.integers(0, 3)))


@examples(50)
@given(worlds())
def test_what_was_prepared_changes_nothing(world: tuple[Case, DistanceEvidence]) -> None:
    case, evidence = world
    fresh = replace(evidence, space=replace(case.space))
    prepare(case.tree, evidence, ALL, default_tree_rules())
    assert shape(case.tree, evidence, ALL)[:2] == shape(case.tree, fresh, ALL)[:2]


def test_dmac_is_done_when_its_trees_were_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, space = flat_tree(ids(*range(12))), space_of(np.eye(12), linkage="average")
    evidence = DistanceEvidence(tree, space, blind_loss=1e9)  # no part gains a notable part of it
    prepare(tree, evidence, ALL, default_tree_rules())
    monkeypatch.setattr(default_splits, "dmac", None)
    assert find_splits(tree, evidence, ALL) == []


@examples(150)
@given(worlds())
def test_the_edits_lead_from_the_first_tree_to_the_last(
    world: tuple[Case, DistanceEvidence],
) -> None:
    case, evidence = world
    after, edits, seen = shape(case.tree, evidence, case.config)
    assert after.is_compact
    assert after.clients == case.tree.clients
    assert apply_all(case.tree, edits) == after
    assert replace(seen, moved=()) == replace(evidence, tree=after)
    tree, used, moved = case.tree, set(case.tree.parent), set[NodeId]()
    for edit in edits:
        before, tree = tree, apply_all(tree, [edit])
        moved |= moved_between(before, tree)
        new = set(tree.parent) - used
        assert all(each >= case.tree.next_id for each in new), "an id came back"
        used |= new
    assert moved_between(case.tree, after) <= set(seen.moved) <= moved


@examples(150)
@given(worlds(hostile=True))
def test_does_nothing_that_it_may_not_do(world: tuple[Case, DistanceEvidence]) -> None:
    """Any operations, and trees with empty and one-child clusters."""
    case, evidence = world
    after, edits, _ = shape(case.tree, evidence, case.config)
    assert after.members == case.tree.members
    assert after.is_compact or "prune" not in case.config.operations
    done = {name for name, number in count_edits(edits).items() if number}
    assert done <= set(case.config.operations)


@examples(150)
@given(worlds(hostile=True))
def test_no_client_moves_to_a_cluster_above_it(world: tuple[Case, DistanceEvidence]) -> None:
    case, evidence = world
    for graft in find_grafts(case.tree, evidence, case.config):
        assert isinstance(graft, Graft)
        assert graft.onto not in case.tree.path(graft.node)


@examples(100)
@given(worlds(), st.data())
def test_told_apart_clusters_stay_apart(
    world: tuple[Case, DistanceEvidence], data: st.DataObject
) -> None:
    case, evidence = world
    merges = find_merges(case.tree, evidence, case.config)
    nodes = [edit.nodes for edit in merges if isinstance(edit, Merge)]
    apart = tuple(data.draw(st.sets(st.sampled_from(nodes)))) if nodes else ()
    after = find_merges(case.tree, replace(evidence, told_apart=apart), case.config)
    found = {edit.nodes for edit in after if isinstance(edit, Merge)}
    assert found.isdisjoint(apart)


@examples(100)
@given(worlds(), st.data())
def test_clients_that_cannot_be_asked_do_no_harm(
    world: tuple[Case, DistanceEvidence], data: st.DataObject
) -> None:
    case, evidence = world
    heard = sorted(data.draw(st.sets(st.sampled_from(case.tree.clients), min_size=1)))
    rows = [case.space.row_of[client] for client in heard]
    some = replace(
        case.space,
        clients=tuple(heard),
        positions=case.space.positions[rows],
        weights=case.space.weights[rows],
    )
    after, edits, _ = shape(case.tree, replace(evidence, space=some), case.config)
    assert after.is_compact
    assert after.members == case.tree.members
    moved = {edit.node for edit in edits if isinstance(edit, Graft)}
    assert moved <= set(heard)


@examples(60)
@given(worlds())
def test_looking_changes_nothing(world: tuple[Case, DistanceEvidence]) -> None:
    case, evidence = world
    before = (dict(case.tree.parent), case.space.positions.copy())
    for find in (find_grafts, find_merges, find_splits, find_prunes):
        assert find(case.tree, evidence, case.config) == find(case.tree, evidence, case.config)
    assert dict(case.tree.parent) == before[0]
    assert (case.space.positions == before[1]).all()


@examples(80)
@given(worlds(ties=False))
def test_the_order_of_the_rows_does_not_matter(world: tuple[Case, DistanceEvidence]) -> None:
    case, evidence = world
    names = {client: client for client in case.space.clients}
    order = [case.space.clients[row] for row in case.rng.permutation(len(names))]
    shuffled = replace(evidence, space=renamed_space(case.space, names, order))
    assert shape(case.tree, shuffled, case.config)[1] == shape(case.tree, evidence, case.config)[1]


@examples(80)
@given(worlds(ties=False))
def test_relabelling_the_clients_relabels_the_tree(world: tuple[Case, DistanceEvidence]) -> None:
    """If all look around in every round: whose turn it is goes by name."""
    case, evidence = world
    rename = random_names(case.tree.clients, case.rng)
    tree = relabelled(case.tree, rename, case.rng)
    space = renamed_space(case.space, rename, tree.clients)
    config = replace(case.config, every=1)
    again = replace(evidence, tree=tree, space=space)
    after, edits, _ = shape(case.tree, evidence, config)
    after_too, edits_too, _ = shape(tree, again, config)
    assert nested(after_too) == nested(after, rename)
    assert count_edits(edits_too) == count_edits(edits)


def test_no_operations_change_nothing() -> None:
    tree = tree_of([[[0, 1]], [2]])
    evidence = DistanceEvidence(tree, space_of([0, 50, 0.1]))
    assert shape(tree, evidence, only()) == (tree, [], evidence)


def test_the_order_of_the_operations_named_does_not_matter() -> None:
    tree = tree_of([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    space = space_of(np.random.default_rng(3).normal(size=(12, 2)))
    evidence = DistanceEvidence(tree, space)
    forward = shape(tree, evidence, ALL)
    assert len(forward[1]) > 1
    assert shape(tree, evidence, only(*reversed(OPERATIONS))) == forward


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
@pytest.mark.parametrize("place", [[0.1, -0.7], [1e7, 3.0], [0.0, 0.0]])
def test_equal_clients_end_in_a_flat_tree(metric, linkage, place: list[float]) -> None:  # type: ignore[no-untyped-def]
    """Rounding in the means must not look like structure."""
    space = space_of([place] * 8, [3, 1, 7, 1, 1, 9, 2, 5], metric, linkage)
    flat = flat_tree(space.clients)
    assert shape(flat, DistanceEvidence(flat, space), ALL)[1] == []
    rested, _ = at_rest(tree_of([[0, 1], [2, 3], [4, 5], [6, 7]]), space, blind_loss=1.0)
    assert nested(rested) == nested(flat)


def at_rest(
    tree: Tree, space: Space, blind_loss: float, every: int = 1, most: int = 20
) -> tuple[Tree, int]:
    """Reshape until all have looked around and there was no edit; how many passes it took."""
    quiet, config = 0, replace(ALL, every=every)
    for passes in range(most):
        tree, edits, _ = shape(tree, DistanceEvidence(tree, space, blind_loss, passes), config)
        quiet = 0 if edits else quiet + 1
        if quiet == every:
            return tree, passes + 1 - every
    raise AssertionError(f"still edits after {most} passes")


SIZES = [5, 3, 8, 4]
CLIENTS = ids(*range(sum(SIZES)))
GROUPS = [list(range(end - size, end)) for size, end in zip(SIZES, np.cumsum(SIZES).tolist())]


def blob_space(seed: int) -> Space:
    return space_of(blobs(np.random.default_rng(seed), SIZES), linkage="average")


@pytest.mark.parametrize("seed", range(20))
def test_right_after_dmac_there_is_nothing_to_do(seed: int) -> None:
    """The blind loss is about that of the mean of all groups."""
    space = blob_space(seed)
    tree = dmac(space, DmacConfig())
    assert {frozenset(group) for group in GROUPS} <= client_sets(tree)
    for round in range(2):
        evidence = DistanceEvidence(tree, space, 1e4, round)
        assert shape(tree, evidence, ALL) == (tree, [], evidence)


HALVED = [half for g in GROUPS for half in (g[: len(g) // 2], g[len(g) // 2 :]) if len(half) > 1]
BROKEN = {
    "flat": list(range(len(CLIENTS))),
    "merged": [GROUPS[0] + GROUPS[1], GROUPS[2] + GROUPS[3]],
    "halved": [*HALVED, 5],
    "two exchanged": [[5, *GROUPS[0][1:]], [0, *GROUPS[1][1:]], GROUPS[2], GROUPS[3]],
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_tree_heals(kind: str, seed: int) -> None:
    space = blob_space(seed)
    healed, passes = at_rest(tree_of(BROKEN[kind]), space, blind_loss=1e4)  # type: ignore[arg-type]
    assert nested(healed) == nested(tree_of(GROUPS))
    assert 1 <= passes <= 4


def test_in_a_random_tree_clients_find_to_their_own() -> None:
    """Nearly all; but two clusters of one group stay two if they are no siblings.

    They take turns, as by default. If all move at once, two clients may chase each other forever:
    each goes where the other has just left.
    """
    of = {client: frozenset(group) for group in GROUPS for client in group}
    pure = whole = 0
    for seed in range(30):
        tree = random_tree(np.random.default_rng(seed), CLIENTS)
        rested, _ = at_rest(tree, blob_space(seed), blind_loss=1e4, every=2)
        homes = {client: rested.clients_of(rested.parent[client]) for client in CLIENTS}  # type: ignore[arg-type]
        pure += all(of[client].issuperset(home) for client, home in homes.items())
        whole += set(of.values()) <= client_sets(rested)
    assert pure >= 28
    assert whole >= 15


def test_a_client_that_moves_is_followed() -> None:
    positions = blobs(np.random.default_rng(0), SIZES)
    tree = tree_of(GROUPS)
    moved = positions.copy()
    moved[0] = moved[-1] + np.random.default_rng(1).normal(size=moved.shape[1])
    healed, passes = at_rest(tree, space_of(moved, linkage="average"), blind_loss=1e4)
    assert passes == 1
    assert nested(healed) == nested(tree_of([GROUPS[0][1:], *GROUPS[1:3], [0, *GROUPS[3]]]))
