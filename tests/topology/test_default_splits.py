"""Splits: DMAC proposes, losses decide, and a model that is worse than none is a reason too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.default_splits import (
    find_splits,
    is_clear,
    is_compatible,
    is_gain,
    outermost,
    proposed_parts,
    suited,
)
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.evidence import DistanceEvidence
from sofa_fl.topology.clustering.separation import student
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from sofa_fl.topology.tree.edits import Edit, Split, apply_all
from tests.topology.strategies import ALL, Drawn, ids, nested, node, space_of, tree_of
from tests.topology.worlds import MadeUp, apart, blobs

RNG = np.random.default_rng(0)
GROUPS = blobs(RNG, [4, 4, 4])


def splits_of(drawn: Drawn, positions: Floats, blind_loss: float = 1e-3) -> list[Edit]:
    """What is split where losses are squared distances, and any gain is one."""
    tree = tree_of(drawn)
    space = space_of(positions, linkage="average")
    return find_splits(tree, DistanceEvidence(tree, space, blind_loss), ALL)


def after(drawn: Drawn, positions: Floats) -> object:
    return nested(apply_all(tree_of(drawn), splits_of(drawn, positions)))


def test_groups_of_the_roots_children_become_its_parts() -> None:
    (split,) = splits_of(list(range(12)), GROUPS)
    groups = (ids(0, 1, 2, 3), ids(4, 5, 6, 7), ids(8, 9, 10, 11))
    assert isinstance(split, Split)
    assert (split.node, split.into) == (12, (13, 14, 15))
    assert sorted(split.groups) == sorted(groups)


def test_clusters_with_clients_on_trial_are_not_split() -> None:
    """How far apart they are says how they started."""
    tree = tree_of([[0, 1, 2, 3, 4, 5, 6, 7], 8, 9, 10, 11])
    space = space_of(GROUPS, linkage="average")
    seen = DistanceEvidence(tree, space, 1e-3)

    def split(*on_trial: int) -> list[NodeId]:
        found = find_splits(tree, replace(seen, on_trial=ids(*on_trial)), ALL)
        return [edit.node for edit in found if isinstance(edit, Split)]

    assert split() == [12, 13]
    assert split(0) == [12]
    assert split(8) == [13]
    assert split(0, 8) == []
    assert seen.after(tree, []).on_trial == ()


def test_there_is_no_split_without_a_gain() -> None:
    assert splits_of(list(range(12)), GROUPS, blind_loss=1e9) == []


def test_noise_is_not_split() -> None:
    """Nor are models that lose no more than a blind guess."""
    noise = np.random.default_rng(1).normal(size=(12, 500))
    assert splits_of(list(range(12)), noise, blind_loss=1000.0) == []


def with_strays(num: int) -> Floats:
    """A group of four, and others each in a direction of its own."""
    return np.vstack([blobs(RNG, [4]) * 0.1, 40 * np.eye(60)[:num]])


def test_below_the_root_those_in_no_part_are_one_too() -> None:
    positions = np.vstack([with_strays(3), 1000 + blobs(RNG, [3])])
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
    positions = np.hstack([blobs(RNG, [4, 4, 4, 4]), far])
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


def test_proposals_are_sets_of_several_children_and_not_of_all() -> None:
    tree = flat_tree(ids(*range(12)))
    evidence = DistanceEvidence(tree, space_of(GROUPS, linkage="average"))
    groups = [ids(0, 1, 2, 3), ids(4, 5, 6, 7), ids(8, 9, 10, 11)]
    assert sorted(proposed_parts(alone(12), evidence)) == groups
    assert proposed_parts(alone(4), evidence) == [], "all"
    assert sorted(proposed_parts(alone(8), evidence)) == groups[:2]
    clusters = {node(20): list(ids(0, 1, 2, 3)), **{c: [c] for c in ids(4, 5, 6, 7)}}
    assert proposed_parts(clusters, evidence) == [groups[1]], "one child is no part"
    backward = dict(reversed(alone(12).items()))
    assert sorted(proposed_parts(backward, evidence)) == groups, "in order of their ids"


def faint_groups(seed: int, shift: float = 12.0) -> Space:
    """Four groups of six in so many directions that noise hides them from DMAC."""
    positions = np.random.default_rng(seed).normal(size=(24, 2000))
    positions[np.arange(24), np.arange(24) // 6] += shift
    return space_of(positions, linkage="average")


def test_groups_are_proposed_that_noise_hides_from_dmac() -> None:
    """Losses decide; DMAC by itself would not call them clusters."""
    groups = {ids(*range(k, k + 6)) for k in (0, 6, 12, 18)}
    found = 0
    for seed in range(5):
        space = faint_groups(seed)
        assert dmac(space, DmacConfig()).depth == 1
        assert dmac(space, DmacConfig(certain=False)).depth == 1
        parts = proposed_parts(alone(24), DistanceEvidence(flat_tree(space.clients), space))
        found += len(groups & set(parts))
    assert found >= 18


def test_of_pure_noise_nothing_is_proposed() -> None:
    proposed = 0
    for seed in range(10):
        space = faint_groups(seed, shift=0.0)
        evidence = DistanceEvidence(flat_tree(space.clients), space)
        proposed += bool(proposed_parts(alone(24), evidence))
    assert proposed <= 3


def in_parts(gaining: set[tuple[NodeId, ...]]) -> tuple[list[Edit], MadeUp]:
    """Two pairs of groups: the splits, if the parts named gain and no others do."""
    far = np.repeat([[0.0], [500.0]], 8, axis=0)
    space = space_of(np.hstack([blobs(RNG, [4, 4, 4, 4]), far]), linkage="average")
    evidence = MadeUp(space, lambda _, nodes: 0.1 if nodes in gaining else 0.5)
    return find_splits(flat_tree(space.clients), evidence, ALL), evidence


def test_inside_of_parts_that_gain_nothing_smaller_ones_are_looked_for() -> None:
    outer, inner = [ids(*range(k, k + 8)) for k in (0, 8)], [ids(0, 1, 2, 3), ids(12, 13, 14, 15)]
    edits, evidence = in_parts({outer[0], *inner})
    groups = (outer[0], inner[1])
    assert edits == [Split(node(16), ids(17, 18), groups)]
    asked = [{nodes for (_, nodes), _ in call} for call in evidence.calls]
    assert asked[0] == {(16,), *outer}, "all parts that are in no other at once"
    assert asked[1] == {ids(8, 9, 10, 11), inner[1]}, "then what is in those that gain nothing"
    edits, _ = in_parts(set(inner))
    assert edits == [Split(node(16), ids(17, 18), tuple(inner))]


def test_outermost_parts_are_in_no_other() -> None:
    parts = [ids(0, 1, 2), ids(3, 4), ids(0, 1), ids(5, 6)]
    assert outermost(parts) == [ids(0, 1, 2), ids(3, 4), ids(5, 6)]
    assert outermost([]) == []


def pairs_of(num: int) -> dict[NodeId, list[NodeId]]:
    """Clusters of two clients each."""
    return {node(100 + k): list(ids(2 * k, 2 * k + 1)) for k in range(num)}


@pytest.mark.parametrize(("times", "clear"), [(0.999, False), (1.001, True)])
def test_clusters_must_be_apart_by_half_as_much_again(times: float, clear: bool) -> None:
    space = space_of(apart([4, 4], 1.5**2 * times), linkage="average")
    assert is_clear(ids(100, 101), pairs_of(4), space) == clear
    some = {node(100): list(ids(0, 1)), **{c: [c] for c in ids(2, 3, 4, 5, 6, 7)}}
    assert is_clear(ids(2, 3, 100), some, space) == clear, "one cluster is enough"
    assert is_clear(ids(4, 5, 6, 7), some, space), "clients have not trained apart"
    evidence = DistanceEvidence(flat_tree(space.clients), space)
    proposed = proposed_parts(pairs_of(4), evidence)
    assert proposed == ([ids(100, 101), ids(102, 103)] if clear else [])


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
    assert gain_of(0.0201 * 5 * unit, blind_loss=5 * unit)
    assert not gain_of(0.0199 * 5 * unit, blind_loss=5 * unit)
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


@pytest.mark.parametrize(("more", "compatible"), [(0.199, True), (0.201, False), (-1.0, True)])
def test_clusters_that_contradict_each_other_get_no_level_above(
    more: float, compatible: bool
) -> None:
    """By their mean, each client loses so much more than by its own; a tenth of 2 is allowed."""
    part = ids(100, 101)

    def loss(client: int, nodes: tuple[NodeId, ...]) -> float:
        return (
            1.0 + more
            if nodes == part
            else {100: 0.5, 101: 1.5}[nodes[0]] + 0.5 * (1 if client < 2 else -1)
        )

    evidence = MadeUp(space_of(np.arange(4)), loss, blind_loss=2.0)
    assert is_compatible(part, pairs_of(2), evidence) == compatible
    assert is_compatible(ids(0, 1), alone(2), evidence), "clients alone are not asked"
    evidence = MadeUp(space_of(np.arange(4)), lambda c, nodes: float(len(nodes) > 1 and c == 0))
    assert not is_compatible(part, pairs_of(2), evidence), "a quarter"
    evidence.counts = {1: 20}
    assert is_compatible(part, pairs_of(2), evidence), "by samples"


def test_a_tenth_more_is_compatible() -> None:
    evidence = MadeUp(space_of(np.arange(4)), lambda _, nodes: float(len(nodes)), blind_loss=10.0)
    assert is_compatible(ids(100, 101), pairs_of(2), evidence)


@pytest.mark.parametrize(("together", "num_parts"), [(0.15, 2), (0.4, 0)])
def test_a_level_above_clusters_must_serve_them(together: float, num_parts: int) -> None:
    """Two and two of four clusters are near; the root's model serves none of them."""
    space = space_of(blobs(RNG, [4, 4]), linkage="average")
    tree = tree_of([[0, 1], [2, 3], [4, 5], [6, 7]])

    def loss(client: int, nodes: tuple[NodeId, ...]) -> float:
        return together if len(nodes) > 1 else 0.9 if nodes == (tree.root,) else 0.1

    edits = find_splits(tree, MadeUp(space, loss), ALL)
    assert sum(len(edit.into) for edit in edits if isinstance(edit, Split)) == num_parts


def test_clients_of_all_clusters_are_asked_at_once() -> None:
    """Every call is an exchange of messages."""
    tree = tree_of([list(range(6)), list(range(6, 12))])
    noise = space_of(np.random.default_rng(1).normal(size=(12, 500)), linkage="average")
    evidence = MadeUp(noise, lambda client, nodes: 0.1)
    assert find_splits(tree, evidence, ALL) == []
    clusters = [tree.parent[client] for client in tree.clients]
    assert evidence.calls == [{((c, (p,)), True) for c, p in zip(tree.clients, clusters)}]
    groups = space_of(blobs(RNG, [3, 3, 3, 3]), linkage="average")
    evidence = MadeUp(groups, lambda client, nodes: float(len(nodes) == 1))
    assert len(find_splits(tree, evidence, ALL)) == 2
    assert len(evidence.calls) == 1
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
