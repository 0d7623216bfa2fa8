"""Splits: losses decide on what DMAC proposes, unless it is certain, and they find other parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NoReturn

import numpy as np
import pytest

from sofa_fl.topology.clustering import default_splits
from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.clustering.default_splits import (
    about_parents,
    beside_clusters,
    certain_parts,
    find_splits,
    foresee_splits,
    groups_of_clients,
    is_gain,
    may_gain,
    outermost,
    parts_of,
    suited,
)
from sofa_fl.topology.clustering.default_splits import space_of as space_below
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.evidence import DistanceEvidence
from sofa_fl.topology.clustering.separation import student
from sofa_fl.topology.clustering.shape import shape
from sofa_fl.topology.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from sofa_fl.topology.edits import Edit, Graft, Split, apply_all
from tests.topology.strategies import ALL, Drawn, ids, nested, node, space_of, tree_of
from tests.topology.worlds import MadeUp, blobs

SEED = 0  # of all groups, so that no test depends on those before it
GROUPS = blobs(np.random.default_rng(SEED), [4, 4, 4])


def splits_of(drawn: Drawn, positions: Floats, blind_loss: float = 1e-3) -> list[Edit]:
    """What is split where losses are squared distances, and any gain is one."""
    tree = tree_of(drawn)
    space = space_of(positions, linkage="average")
    return find_splits(tree, DistanceEvidence(tree, space, blind_loss), ALL)


def after(drawn: Drawn, positions: Floats, blind_loss: float = 1e-3) -> object:
    return nested(apply_all(tree_of(drawn), splits_of(drawn, positions, blind_loss)))


NO_GAIN = 1e9  # a blind loss of which no difference is a notable part


def test_groups_of_the_roots_children_become_its_parts() -> None:
    (split,) = splits_of(list(range(12)), GROUPS)
    groups = (ids(0, 1, 2, 3), ids(4, 5, 6, 7), ids(8, 9, 10, 11))
    assert isinstance(split, Split)
    assert (split.node, split.into) == (12, (13, 14, 15))
    assert sorted(split.groups) == sorted(groups)


def test_faint_groups_are_not_split_without_a_gain() -> None:
    """DMAC is not certain of them; losses tell them apart, if they do."""
    space = faint_groups(0)
    assert splits_of(list(range(24)), space.positions, blind_loss=NO_GAIN) == []
    assert splits_of(list(range(24)), space.positions) != []


def test_noise_is_not_split() -> None:
    """Nor are models that lose no more than a blind guess."""
    noise = np.random.default_rng(1).normal(size=(12, 500))
    assert splits_of(list(range(12)), noise, blind_loss=1000.0) == []


def with_strays(num: int) -> Floats:
    """A group of four, and others each in a direction of its own."""
    return np.vstack([blobs(np.random.default_rng(SEED), [4]) * 0.1, 40 * np.eye(60)[:num]])


def test_below_the_root_those_in_no_part_are_one_too() -> None:
    positions = np.vstack([with_strays(3), 1000 + blobs(np.random.default_rng(SEED), [3])])
    drawn: Drawn = [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9]]
    assert after(drawn, positions) == nested(tree_of([[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]))


def test_at_the_root_they_stay() -> None:
    assert after(list(range(7)), with_strays(3)) == nested(tree_of([[0, 1, 2, 3], 4, 5, 6]))


def test_two_children_are_not_looked_at() -> None:
    assert splits_of([0, 1], np.array([[0.0], [100.0]])) == []
    assert splits_of([[0, 1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11]], GROUPS) != []
    assert splits_of([[0, 1, 2, 3], [4, 5, 6, 7]], GROUPS[:8]) == []
    three = np.array([[0.0, 1], [0, -1], [100, 0]])
    assert splits_of([0, 1, 2], three) == [Split(node(3), ids(4), (ids(0, 1),))]


def test_a_part_is_made_of_whole_children() -> None:
    """The cluster of 3 and 4 lies across two groups: neither becomes a part, the third does."""
    drawn: Drawn = [0, 1, 2, [3, 4], 5, 6, 7, 8, 9, 10, 11]
    assert after(drawn, GROUPS) == nested(tree_of([0, 1, 2, [3, 4], 5, 6, 7, [8, 9, 10, 11]]))


def test_the_largest_parts_come_first() -> None:
    """Two pairs of groups: first the pairs; their groups later, when the pairs have a model."""
    far = np.repeat([[0.0], [500.0]], 8, axis=0)
    positions = np.hstack([blobs(np.random.default_rng(SEED), [4, 4, 4, 4]), far])
    once = after(list(range(16)), positions)
    assert once == nested(tree_of([list(range(8)), list(range(8, 16))]))
    twice = after([list(range(8)), list(range(8, 16))], positions)
    groups = [list(range(k, k + 4)) for k in (0, 4, 8, 12)]
    assert twice == nested(tree_of(groups)), "beside each other: a split makes no level"


def test_ids_go_on_from_cluster_to_cluster() -> None:
    positions = np.vstack([GROUPS[:8], 1000 + GROUPS[:8]])
    edits = splits_of([list(range(8)), list(range(8, 16))], positions)
    assert [e.into for e in edits if isinstance(e, Split)] == [ids(19, 20), ids(21, 22)]


def test_a_child_that_cannot_be_asked_goes_with_the_rest() -> None:
    heard = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    space = Space(ids(*heard), GROUPS[heard], np.ones(11), linkage="average")
    for drawn, expected in (
        (list(range(12)), [[0, 1, 2, 3], 4, [5, 6, 7], [8, 9, 10, 11]]),
        ([list(range(12)), 12], [[0, 1, 2, 3], [4], [5, 6, 7], [8, 9, 10, 11], 12]),
    ):
        tree = tree_of(drawn)  # type: ignore[arg-type]
        edits = find_splits(tree, DistanceEvidence(tree, space, 1e-3), ALL)
        assert nested(apply_all(tree, edits)) == nested(tree_of(expected))  # type: ignore[arg-type]


def alone(num: int) -> dict[NodeId, list[NodeId]]:
    return {node(c): [node(c)] for c in range(num)}


def test_groups_are_sets_of_several_clients_and_not_of_all_children() -> None:
    tree = flat_tree(ids(*range(12)))
    evidence = DistanceEvidence(tree, space_of(GROUPS, linkage="average"))
    groups = [ids(0, 1, 2, 3), ids(4, 5, 6, 7), ids(8, 9, 10, 11)]
    for find in (groups_of_clients, certain_parts):
        assert sorted(find(alone(12), evidence)) == groups
        assert find(alone(4), evidence) == [], "all"
        assert sorted(find(alone(8), evidence)) == groups[:2]
        clusters = {node(20): list(ids(0, 1, 2, 3)), **{c: [c] for c in ids(4, 5, 6, 7)}}
        assert find(clusters, evidence) == [groups[1]], "one child is no part"
        backward = dict(reversed(alone(12).items()))
        assert sorted(find(backward, evidence)) == groups, "in order of their ids"


def mixed() -> dict[NodeId, list[NodeId]]:
    """Of `GROUPS`: a cluster and two clients of the first, clients, and two clusters."""
    clusters = {100: ids(0, 1), 101: ids(8, 9), 102: ids(10, 11)}
    alone = {c: [c] for c in ids(2, 3, 4, 5, 6, 7)}
    return {node(k): list(below) for k, below in clusters.items()} | alone


def test_no_part_is_of_clients_and_clusters() -> None:
    """Of clients only, or of clusters only; losses are asked about those of clients."""
    evidence = DistanceEvidence(tree_of(range(12)), space_of(GROUPS, linkage="average"))
    assert groups_of_clients(mixed(), evidence) == [ids(4, 5, 6, 7)]
    assert sorted(certain_parts(mixed(), evidence)) == [ids(4, 5, 6, 7), ids(101, 102)]
    some = {c: below for c, below in mixed().items() if c not in ids(101, 102, 4, 5)}
    assert groups_of_clients(some, evidence) == certain_parts(some, evidence) == [ids(6, 7)]
    del some[node(6)]
    assert groups_of_clients(some, evidence) == certain_parts(some, evidence) == []


def test_where_there_is_one_client_beside_clusters_nobody_looks_for_groups_of_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("looked")

    monkeypatch.setattr(default_splits, "dmac", refuse)
    evidence = DistanceEvidence(tree_of(range(12)), space_of(GROUPS, linkage="average"))
    children = pairs_of(4) | {node(8): [node(8)]}
    assert groups_of_clients(children, evidence) == []
    with pytest.raises(AssertionError, match="looked"):
        groups_of_clients(children | {node(9): [node(9)]}, evidence)


def test_a_cluster_with_one_client_is_no_client() -> None:
    evidence = DistanceEvidence(tree_of(range(12)), space_of(GROUPS, linkage="average"))
    children = {node(100): [node(0)], **{c: [c] for c in ids(1, 2, 3, 4, 5, 6, 7)}}
    assert groups_of_clients(children, evidence) == [ids(4, 5, 6, 7)]
    assert certain_parts(children, evidence) == [ids(4, 5, 6, 7)]


def test_the_space_of_children_is_that_of_the_clients_below_them() -> None:
    space = space_of(np.arange(6.0), [1, 2, 3, 4, 5, 6], "manhattan")
    evidence = DistanceEvidence(tree_of(range(6)), space)
    some = space_below({node(9): list(ids(4, 1)), node(2): [node(2)]}, evidence)
    assert some.clients == ids(4, 1, 2)
    assert some.positions.tolist() == [[4], [1], [2]]
    assert some.weights.tolist() == [5, 2, 3]
    assert (some.metric, some.linkage) == (space.metric, space.linkage)


def test_parts_are_unions_of_children() -> None:
    """Outer ones first; neither one child, nor all of them, nor what cuts through one."""
    tree = tree_of([[[0, 1], 2, 3], [4, 5], [6, 7, 8]])
    assert parts_of(tree, alone(9)) == [
        ids(0, 1, 2, 3),
        ids(0, 1),
        ids(4, 5),
        ids(6, 7, 8),
    ]
    children = {node(20): list(ids(3, 4)), node(21): list(ids(6, 8)), node(7): [node(7)]}
    children |= {node(22): list(ids(0, 1)), node(2): [node(2)], node(5): [node(5)]}
    assert parts_of(tree, children) == [ids(7, 21)]
    two = {node(20): list(ids(0, 1, 2, 3)), node(21): list(ids(4, 5, 6, 7, 8))}
    assert parts_of(tree_of([[0, 1, 2, 3], [4, 5, 6, 7, 8]]), two) == []
    assert parts_of(tree_of([[*range(9)], 9]), alone(9)) == [], "all"


def faint_groups(seed: int, shift: float = 12.0) -> Space:
    """Four groups of six in so many directions that noise hides them from DMAC."""
    positions = np.random.default_rng(seed).normal(size=(24, 2000))
    positions[np.arange(24), np.arange(24) // 6] += shift
    return space_of(positions, linkage="average")


def test_groups_of_clients_are_found_that_noise_hides_from_dmac() -> None:
    """Losses decide; DMAC by itself would not call them clusters."""
    groups = {ids(*range(k, k + 6)) for k in (0, 6, 12, 18)}
    found = 0
    for seed in range(5):
        space = faint_groups(seed)
        assert dmac(space, DmacConfig()).depth == 1
        assert dmac(space, DmacConfig(certain=False)).depth == 1
        evidence = DistanceEvidence(flat_tree(space.clients), space)
        assert certain_parts(alone(24), evidence) == []
        parts = groups_of_clients(alone(24), evidence)
        found += len(groups & set(parts))
    assert found >= 18


def test_what_may_be_chance_is_a_group_but_not_certain() -> None:
    """In few directions noise has gaps. Losses decide on groups there, DMAC alone does not."""
    for seed in (0, 7, 10, 11, 14):
        space = space_of(np.random.default_rng(seed).normal(size=(12, 3)), linkage="average")
        evidence = DistanceEvidence(flat_tree(space.clients), space)
        assert groups_of_clients(alone(12), evidence)
        assert certain_parts(alone(12), evidence) == []


def test_in_pure_noise_there_are_no_groups() -> None:
    proposed = 0
    for seed in range(10):
        space = faint_groups(seed, shift=0.0)
        evidence = DistanceEvidence(flat_tree(space.clients), space)
        proposed += bool(groups_of_clients(alone(24), evidence))
        assert certain_parts(alone(24), evidence) == []
    assert proposed <= 3


def in_parts(gaining: set[tuple[NodeId, ...]]) -> tuple[list[Edit], MadeUp]:
    """Two pairs of groups: the splits, if the parts named gain and no others do."""
    far = np.repeat([[0.0], [500.0]], 8, axis=0)
    space = space_of(
        np.hstack([blobs(np.random.default_rng(SEED), [4, 4, 4, 4]), far]), linkage="average"
    )
    evidence = MadeUp(space, lambda _, nodes: 0.1 if nodes in gaining else 0.5)
    return find_splits(flat_tree(space.clients), evidence, ALL), evidence


def test_inside_of_parts_that_gain_nothing_smaller_ones_are_looked_for() -> None:
    outer, inner = [ids(*range(k, k + 8)) for k in (0, 8)], [ids(0, 1, 2, 3), ids(12, 13, 14, 15)]
    edits, evidence = in_parts({outer[0], *inner})
    groups = (outer[0], inner[1])
    assert edits == [Split(node(16), ids(17, 18), groups)]
    asked = [{nodes for (_, nodes), _ in call} for call in evidence.calls]
    assert asked[0] == {(16,)}, "which is known from where losses are compared"
    assert asked[1] == {*outer}, "all parts that are in no other at once"
    assert asked[2] == {ids(8, 9, 10, 11), inner[1]}, "then what is in those that gain nothing"
    edits, _ = in_parts(set(inner))
    assert edits == [Split(node(16), ids(17, 18), tuple(inner))]


def test_outermost_parts_are_in_no_other() -> None:
    parts = [ids(0, 1, 2), ids(3, 4), ids(0, 1), ids(5, 6)]
    assert outermost(parts) == [ids(0, 1, 2), ids(3, 4), ids(5, 6)]
    assert outermost([]) == []


def pairs_of(num: int) -> dict[NodeId, list[NodeId]]:
    """Clusters of two clients each."""
    return {node(100 + k): list(ids(2 * k, 2 * k + 1)) for k in range(num)}


# 8 ── 9 ── 0, 1
#   ├─ 10 ── 2, 3
#   ├─ 11 ── 4, 5
#   └─ 12 ── 6, 7
LEVEL: Drawn = [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_what_dmac_is_certain_of_needs_no_gain() -> None:
    """As in the first tree. Nobody is asked what the parts lose."""
    groups = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert after(list(range(12)), GROUPS, NO_GAIN) == nested(tree_of(groups))
    assert after(LEVEL, GROUPS[:8], NO_GAIN) == nested(
        tree_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]]])
    )
    evidence = MadeUp(space_of(GROUPS[:8], linkage="average"), lambda *_: 0.1)
    (split,) = find_splits(tree_of(LEVEL), evidence, ALL)
    assert isinstance(split, Split)
    assert (split.node, split.into) == (8, (13, 14))
    assert sorted(split.groups) == [ids(9, 10), ids(11, 12)]
    assert evidence.asked == []


def test_a_level_above_clusters_needs_no_model_that_serves_them() -> None:
    """How far each goes its own way is chosen later: the level costs nothing."""
    evidence = MadeUp(
        space_of(GROUPS[:8], linkage="average"), lambda _, nodes: 9.0 if len(nodes) > 1 else 0.1
    )
    (split,) = find_splits(tree_of(LEVEL), evidence, ALL)
    assert isinstance(split, Split)
    assert sorted(split.groups) == [ids(9, 10), ids(11, 12)]


def test_clusters_are_put_together_beside_clients() -> None:
    """Above them a level; the clients, each for itself, stay where they are."""
    strays = 100 * np.eye(60)[10:13]
    positions = np.vstack([GROUPS[:4], strays, GROUPS[4:8]])
    drawn: Drawn = [[0, 1], [2, 3], 4, 5, 6, [7, 8, 9, 10]]
    expected: Drawn = [[[0, 1], [2, 3]], 4, 5, 6, [7, 8, 9, 10]]
    assert after(drawn, positions, NO_GAIN) == nested(tree_of(expected))


def test_below_the_root_those_in_no_certain_part_stay_beside_it() -> None:
    """Other than with parts that gain, there is then a level more."""
    positions = np.vstack([with_strays(3), 1000 + blobs(np.random.default_rng(SEED), [3])])
    drawn: Drawn = [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9]]
    expected: Drawn = [[[0, 1, 2, 3], 4, 5, 6], [7, 8, 9]]
    assert after(drawn, positions, NO_GAIN) == nested(tree_of(expected))


def test_of_certain_parts_the_outer_come_first() -> None:
    far = np.repeat([[0.0], [500.0]], 8, axis=0)
    positions = np.hstack([blobs(np.random.default_rng(SEED), [4, 4, 4, 4]), far])
    evidence = DistanceEvidence(flat_tree(ids(*range(16))), space_of(positions, linkage="average"))
    parts = certain_parts(alone(16), evidence)
    groups = [ids(*range(k, k + 4)) for k in (0, 4, 8, 12)]
    assert sorted(parts) == sorted([ids(*range(8)), ids(*range(8, 16)), *groups])
    once = after(list(range(16)), positions, NO_GAIN)
    assert once == nested(tree_of([list(range(8)), list(range(8, 16))]))


def test_certain_parts_wait_for_those_that_losses_find() -> None:
    """One group gains, one client is spoiled: of the other groups there is no part yet."""
    space = space_of(GROUPS, linkage="average")
    tree, group = flat_tree(space.clients), ids(4, 5, 6, 7)
    evidence = MadeUp(space, lambda _, nodes: 0.1 if nodes == group else 0.5)
    assert find_splits(tree, evidence, ALL) == [Split(node(12), ids(13), (group,))]
    evidence = MadeUp(space, lambda client, _: 3.0 if client == 2 else 0.5)
    others = ids(0, 1, *range(3, 12))
    assert find_splits(tree, evidence, ALL) == [Split(node(12), ids(13), (others,))]


@pytest.mark.parametrize("moved", [0, 5, 11])
def test_where_a_client_has_moved_there_are_no_certain_parts(moved: int) -> None:
    """It is where its old siblings are. Elsewhere there are; and those that gain are made."""
    space = space_of(np.vstack([GROUPS, 1000 + GROUPS]), linkage="average")
    tree = tree_of([list(range(12)), list(range(12, 24))])  # 24: 25 and 26

    def split(blind_loss: float, *moved: int) -> list[NodeId]:
        evidence = DistanceEvidence(tree, space, blind_loss, moved=ids(*moved))
        return [e.node for e in find_splits(tree, evidence, ALL) if isinstance(e, Split)]

    assert split(NO_GAIN) == [25, 26]
    assert split(NO_GAIN, moved) == [26]
    assert split(NO_GAIN, moved, 12) == []
    assert split(1e-3, moved) == [25, 26]


def test_clusters_have_not_moved_because_clients_in_them_have() -> None:
    evidence = DistanceEvidence(tree_of(LEVEL), space_of(GROUPS[:8], linkage="average"), NO_GAIN)
    parts = [ids(9, 10), ids(11, 12)]
    children = {node(9 + k): list(ids(2 * k, 2 * k + 1)) for k in range(4)}
    assert sorted(certain_parts(children, replace(evidence, moved=ids(0, 7)))) == parts
    beside = {node(9): list(ids(0, 1)), **{c: [c] for c in ids(2, 3, 4, 5, 6, 7)}}
    assert certain_parts(beside, replace(evidence, moved=ids(0))) == [ids(4, 5, 6, 7)]
    assert certain_parts(beside, replace(evidence, moved=ids(2))) == []


def test_shape_makes_no_certain_part_of_those_it_has_just_moved() -> None:
    """A client moves to two groups; these are told apart when it has trained with them."""
    tree = tree_of([[0, 1, 2, 3, 4], [*range(5, 12)]])  # 12: 13 and 14
    space, blind_loss = space_of(GROUPS, linkage="average"), 2.6e5
    moved, edits, seen = shape(tree, DistanceEvidence(tree, space, blind_loss), ALL)
    assert edits == [Graft(node(4), node(14))]
    assert seen.moved == {4}
    (split,) = shape(moved, DistanceEvidence(moved, space, blind_loss), ALL)[1]
    assert isinstance(split, Split)
    assert sorted(split.groups) == [ids(4, 5, 6, 7), ids(8, 9, 10, 11)]


def gain_of(better: float, counts: dict[int, int] | None = None, blind_loss: float = 1.0) -> bool:
    """Clients 0 and 1 lose 0.5 by their cluster's model, less by that of them alone."""

    def loss(client: int, nodes: tuple[NodeId, ...]) -> float:
        return {ids(9): 0.5, ids(0, 1): 0.5 - better}[nodes]

    evidence = MadeUp(space_of([0.0, 1, 2]), loss, blind_loss, counts=counts or {})
    gain = is_gain(ids(0, 1), node(9), alone(3), evidence)
    assert {client for client, _ in evidence.models_asked} == {0, 1}
    assert not any(more for _, more in evidence.asked)
    return gain


@pytest.mark.parametrize("unit", [1.0, 5.0])
def test_a_gain_is_a_fiftieth_of_the_blind_loss_and_a_tenth_of_what_is_lost(unit: float) -> None:
    """Two clients lose 0.5, and gain the same, so that chance is no reason."""
    assert gain_of(0.0501, blind_loss=unit / 2)
    assert not gain_of(0.0499, blind_loss=unit / 2), "a tenth of 0.5"
    assert gain_of(0.0201 * 4 * unit, blind_loss=4 * unit)
    assert not gain_of(0.0199 * 4 * unit, blind_loss=4 * unit)
    assert not gain_of(-0.5 * unit, blind_loss=unit)


def gains(
    by_part: list[float], blind_loss: float = 1.0, counts: dict[int, int] | None = None
) -> bool:
    """Whether there is a gain for clients that lose 0.5 by their cluster, by the part as given."""
    part = ids(*range(len(by_part)))
    evidence = MadeUp(
        space_of(np.arange(len(by_part) + 1)),
        lambda client, nodes: by_part[client] if nodes == part else 0.5,
        blind_loss,
        counts=counts or {},
    )
    return is_gain(part, node(99), alone(len(by_part) + 1), evidence)


@pytest.mark.parametrize("n", [4, 10, 40])
def test_a_gain_must_be_more_than_chance(n: int) -> None:
    """Of n gains, half d above the mean and half below, the standard error is d / √(n − 1)."""
    for mean, errors in ((0.06, student(n - 1)), (0.0999, student(n - 1)), (0.1001, 2.0)):
        for times, expected in ((0.99, True), (1.01, False)):
            d = times * mean * (n - 1) ** 0.5 / errors
            more = [mean + d, mean - d] * (n // 2)
            assert gains([0.5 - gain for gain in more]) == expected


def test_the_gain_is_by_samples() -> None:
    assert gains([0.2, 0.25, 0.35]), "0.23 in the mean is much"
    assert not gains([0.2, 0.25, 0.5], counts={2: 20})


def test_who_may_gain_is_told_by_samples_and_the_blind_loss() -> None:
    """0.036 by samples, 0.06 by clients; the least is 0.04, a fiftieth of 2."""
    losses = {0: 0.03, 1: 0.09}
    evidence = MadeUp(space_of([0.0, 1]), lambda client, _: losses[client], 2.0, counts={0: 9})
    assert not may_gain(ids(0, 1), node(9), evidence)
    assert may_gain(ids(0, 1), node(9), replace(evidence, counts={1: 9}))


def test_a_tenth_is_of_what_samples_lose() -> None:
    """Of 0.28 by samples, not of 0.6 by clients; both gain 0.04."""
    lost = {0: 0.2, 1: 1.0}
    evidence = MadeUp(
        space_of([0.0, 1, 2]),
        lambda client, nodes: lost[client] - 0.04 * (len(nodes) > 1),
        counts={0: 9},
    )
    assert is_gain(ids(0, 1), node(9), alone(3), evidence)


def test_much_is_a_fraction_of_the_blind_loss() -> None:
    """A gain of 0.1 by 3.3 standard errors is chance where the blind loss is 2, and not at 0.9."""
    by_part = [0.4 - 0.052, 0.4 + 0.052] * 2
    assert not gains(by_part, blind_loss=2.0)
    assert gains(by_part, blind_loss=0.9)


def judged(loss: Callable[[int], float], blind_loss: float = 2.0, num: int = 5) -> MadeUp:
    return MadeUp(space_of(np.arange(num)), lambda client, nodes: loss(client), blind_loss)


@pytest.mark.parametrize(("lost", "part"), [(2.0, []), (2.001, [ids(0, 1, 2, 4)])])
def test_a_client_for_whom_the_model_is_worse_than_none_is_left_out(
    lost: float, part: list[tuple[NodeId, ...]]
) -> None:
    evidence = judged(lambda client: lost if client == 3 else 0.1)
    assert suited(node(9), alone(5), evidence) == part
    assert {nodes for _, nodes in evidence.models_asked} == {(9,)}
    assert all(more for _, more in evidence.asked)


def test_clusters_are_in_no_such_part_and_are_not_asked() -> None:
    children = {node(8): list(ids(0, 1)), node(7): [node(2)], **{c: [c] for c in ids(3, 4, 5)}}
    evidence = judged(lambda client: 9.0 if client == 3 else 0.1, num=6)
    assert suited(node(9), children, evidence) == [ids(4, 5)]
    assert {client for client, _ in evidence.models_asked} == {3, 4, 5}
    assert suited(node(9), children, judged(lambda client: 0.1, num=6)) == []


def besides(gain: float, unit: float = 1.0, own: float = 0.5, spread: float = 0.0) -> MadeUp:
    """Clients 4 to 7, which lose `own` by cluster 9's model, and so much less by that of them."""

    def loss(client: int, nodes: tuple[NodeId, ...]) -> float:
        ahead = gain + (spread if client % 2 else -spread)
        return own - (ahead if nodes == ids(4, 5, 6, 7) else 0.0)

    return MadeUp(space_of(np.arange(8)), loss, unit)


# Of cluster 9: a cluster of four, and four clients.
BESIDE = {node(8): list(ids(0, 1, 2, 3)), **{c: [c] for c in ids(4, 5, 6, 7)}}


@pytest.mark.parametrize("unit", [1.0, 3.0])
@pytest.mark.parametrize(("gain", "part"), [(0.1001, [ids(4, 5, 6, 7)]), (0.0999, []), (-0.4, [])])
def test_clients_beside_clusters_become_a_part_if_they_gain_much(
    gain: float, part: list[tuple[NodeId, ...]], unit: float
) -> None:
    """By a model without the clusters: a tenth of the blind loss, not a fiftieth as other parts."""
    evidence = besides(gain * unit, unit, own=0.5 * unit)
    assert beside_clusters({node(9): BESIDE}, evidence)[node(9)] == part
    backward = dict(reversed(BESIDE.items()))
    assert beside_clusters({node(9): backward}, evidence)[node(9)] == part, "in order of their ids"
    assert {client for client, _ in evidence.models_asked} == {4, 5, 6, 7}
    assert not any(more for _, more in evidence.asked)


def test_their_gain_must_be_clear_like_any() -> None:
    """A tenth of what they lose, and two standard errors: of four gains, 2 d / √3."""
    assert beside_clusters({node(9): BESIDE}, besides(2.0, unit=20.0, own=10.0))[node(9)] == [], (
        "just much"
    )
    assert beside_clusters({node(9): BESIDE}, besides(0.19, own=2.0))[node(9)] == []
    assert beside_clusters({node(9): BESIDE}, besides(0.21, own=2.0))[node(9)] == [ids(4, 5, 6, 7)]
    d = 0.2 * 3**0.5 / 2
    assert beside_clusters({node(9): BESIDE}, besides(0.2, spread=1.01 * d))[node(9)] == []
    assert beside_clusters({node(9): BESIDE}, besides(0.2, spread=0.99 * d))[node(9)] != []


def test_one_client_beside_clusters_and_clients_without_any_are_no_such_part() -> None:
    def free() -> MadeUp:
        return MadeUp(space_of(np.arange(8)), lambda _, nodes: 1.0 if nodes == ids(9) else 0.0)

    two = pairs_of(3) | {c: [c] for c in ids(6, 7)}
    assert beside_clusters({node(9): two}, free())[node(9)] == [ids(6, 7)]
    for children in (pairs_of(3) | {node(6): [node(6)]}, alone(8), pairs_of(4)):
        evidence = free()
        assert beside_clusters({node(9): children}, evidence)[node(9)] == []
        assert not evidence.asked, "nor is anybody asked"


@pytest.mark.parametrize(("gain", "splits"), [(0.11, True), (0.09, False)])
def test_clients_that_a_cluster_contradicts_get_one_of_their_own(gain: float, splits: bool) -> None:
    """Where they are nothing tells them from it; below the root, the cluster is beside them."""
    space = space_of(np.random.default_rng(1).normal(size=(12, 500)), linkage="average")
    parts = [ids(6, 7, 8, 9), ids(4, 5, 6, 7, 8, 9)]

    def edits(drawn: Drawn) -> list[Edit]:
        tree = tree_of(drawn)
        evidence = MadeUp(space, lambda _, nodes: 0.5 - gain if nodes in parts else 0.5)
        return find_splits(tree, evidence, ALL)

    atop: Drawn = [[0, 1, 2, 3, 10, 11], 4, 5, 6, 7, 8, 9]  # 12: 13
    assert edits(atop) == ([Split(node(12), ids(14), (parts[1],))] if splits else [])
    below: Drawn = [[[0, 1, 2, 3, 4, 5], 6, 7, 8, 9], [10, 11]]  # 12: 13: 14, and 15
    whole = Split(node(13), ids(16, 17), (parts[0], ids(14)))
    assert edits(below) == ([whole] if splits else [])


def test_whom_the_model_does_not_suit_goes_before() -> None:
    """Of clients beside a cluster one is spoiled, and all would gain by a model of their own."""
    space = space_of(np.random.default_rng(1).normal(size=(12, 500)), linkage="average")
    tree = tree_of([[0, 1, 2, 3], [4, 5], 6, 7, 8, 9, 10, 11])  # 12: 13 and 14
    lone = ids(6, 7, 8, 9, 10, 11)

    def edits(most: float) -> list[Edit]:
        def loss(client: int, nodes: tuple[NodeId, ...]) -> float:
            return 0.1 if nodes == lone else most if client == 7 else 0.9

        return find_splits(tree, MadeUp(space, loss), ALL)

    assert edits(0.9) == [Split(node(12), ids(15), (lone,))]
    assert edits(1.1) == [Split(node(12), ids(15), (ids(6, 8, 9, 10, 11),))]


def test_what_clients_beside_clusters_would_gain_is_asked_at_once() -> None:
    """Of all clusters at once, on held-out samples alone."""
    families = {node(9): BESIDE, node(19): alone(3), node(29): pairs_of(3) | {node(6): [node(6)]}}
    evidence = besides(0.5)
    evidence.losses(about_parents(families))
    beside_clusters(families, evidence)
    part = ids(4, 5, 6, 7)
    assert evidence.calls[1:] == [{((client, part), False) for client in part}]


@pytest.mark.parametrize(("own", "asked"), [(0.0999, False), (0.1001, True)])
def test_clients_that_cannot_gain_much_are_not_asked_about_a_model_of_their_own(
    own: float, asked: bool
) -> None:
    """They lose less by the cluster's model than they would have to gain."""
    evidence = besides(0.0, own=own)
    assert beside_clusters({node(9): BESIDE}, evidence)[node(9)] == []
    assert (ids(4, 5, 6, 7) in {nodes for _, nodes in evidence.models_asked}) is asked


def lose(loss: float, *_: object) -> float:
    return loss


def test_no_parts_are_asked_about_where_no_client_loses_enough_to_gain() -> None:
    far = np.repeat([[0.0], [500.0]], 8, axis=0)
    space = space_of(
        np.hstack([blobs(np.random.default_rng(SEED), [8, 8]), far]), linkage="average"
    )
    for lost, asks in ((0.02, False), (0.0201, True)):
        evidence = MadeUp(space, partial(lose, lost))
        find_splits(flat_tree(space.clients), evidence, ALL)
        assert any(len(nodes) > 1 for _, nodes in evidence.models_asked) is asks


def test_what_parents_lose_is_foreseen() -> None:
    tree = tree_of([list(range(6)), list(range(6, 12)), 12, 13, [14, 15]])
    space = space_of(np.random.default_rng(1).normal(size=(16, 500)), linkage="average")
    foreseen = foresee_splits(tree, MadeUp(space, lambda *_: 0.1), ALL)
    alone = [c for c in tree.clients if c not in ids(14, 15)]
    assert set(foreseen) == {(c, (tree.parent[c],)) for c in alone}, "two are not split"


def test_clients_of_all_clusters_are_asked_at_once() -> None:
    """Every call is an exchange of messages."""
    tree = tree_of([list(range(6)), list(range(6, 12))])
    noise = space_of(np.random.default_rng(1).normal(size=(12, 500)), linkage="average")
    evidence = MadeUp(noise, lambda client, nodes: 0.1)
    assert find_splits(tree, evidence, ALL) == []
    clusters = [tree.parent[client] for client in tree.clients]
    assert evidence.calls == [{((c, (p,)), True) for c, p in zip(tree.clients, clusters)}]
    groups = space_of(blobs(np.random.default_rng(SEED), [3, 3, 3, 3]), linkage="average")
    evidence = MadeUp(groups, lambda client, nodes: float(len(nodes) == 1))
    assert len(find_splits(tree, evidence, ALL)) == 2
    assert len(evidence.calls) == 2, "what clients lose by their parents, and by the parts"
    assert {nodes[0] for (_, nodes), _ in evidence.asked if len(nodes) == 1} == set(clusters)


def test_one_child_left_is_no_part() -> None:
    assert suited(node(9), alone(3), judged(lambda client: 9.0 * (client > 0))) == []
    assert suited(node(9), alone(3), judged(lambda client: 9.0 * (client > 1))) == [ids(0, 1)]
    assert suited(node(9), alone(3), judged(lambda client: 9.0)) == []


def test_who_spoils_the_model_of_many_is_set_apart() -> None:
    """By where they are nobody stands out; below the root, the others are a part of their own."""
    positions = np.random.default_rng(3).normal(size=(9, 500))
    space = space_of(positions, linkage="average")

    def edits(tree: Tree) -> list[Edit]:
        evidence = MadeUp(space, lambda client, nodes: 3.0 if client == 2 else 0.5, 2.0)
        edits = find_splits(tree, evidence, ALL)
        assert {n for _, nodes in evidence.models_asked for n in nodes} <= set(tree.parent)
        return edits

    stay = ids(0, 1, 3, 4, 5, 6, 7, 8)
    assert edits(flat_tree(space.clients)) == [Split(node(9), ids(10), (stay,))]
    assert edits(tree_of([[0, 1, 2, 3, 4, 5], [6, 7], 8])) == [
        Split(node(10), ids(12, 13), (ids(0, 1, 3, 4, 5), ids(2)))
    ]


def test_parts_of_dmac_go_before() -> None:
    space = space_of(GROUPS, linkage="average")
    tree = flat_tree(space.clients)

    def loss(client: int, nodes: tuple[NodeId, ...]) -> float:
        return 3.0 if client == 2 else 0.5 if nodes == (tree.root,) else 0.1

    edits = find_splits(tree, MadeUp(space, loss, 2.0), ALL)
    groups = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert nested(apply_all(tree, edits)) == nested(tree_of(groups))
