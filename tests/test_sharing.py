"""Partial data sharing: who gets what, how much, and that the ledger knows all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.data.federated_data import Samples
from sofa_fl.sharing import (
    Shared,
    SharingConfig,
    contributions,
    foreign,
    share,
    traffic,
    training_sets,
)
from sofa_fl.topology.tree import NodeId, Tree, flat_tree

FIRST_CLUSTER = 100


@dataclass(frozen=True)
class World:
    """A tree, and what its clients own; row numbers are scattered, as a partition's are."""

    tree: Tree
    owned: Mapping[NodeId, Samples]

    def rounds(self, config: SharingConfig, rounds: int, seed: int = 0) -> list[Shared]:
        shared, history = Shared(), []
        for round in range(rounds):
            shared = share(self.tree, self.owned, shared, config, seed=seed, round=round)
            history.append(shared)
        return history

    def disclosed(self, shared: Shared) -> dict[NodeId, int]:
        return {c: len(rows) for c, rows in shared.ledger.disclosed(self.owned).items()}


def world_of(nested: object, size: int | list[int] = 100) -> World:
    """A world from nested lists of client numbers, `[[0, 1], 2]`, the root outside."""
    parent: dict[NodeId, NodeId | None] = {}

    def hang(part: object, up: NodeId | None) -> None:
        node = part if isinstance(part, int) else FIRST_CLUSTER + len(parent)
        assert isinstance(node, int)
        parent[NodeId(node)] = up
        if isinstance(part, list):
            for child in part:
                hang(child, NodeId(node))

    hang(nested, None)
    clients = tuple(sorted(node for node in parent if node < FIRST_CLUSTER))
    sizes = [size] * len(clients) if isinstance(size, int) else size
    rows = np.random.default_rng(1).permutation(2 * sum(sizes))[: sum(sizes)]
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    owned = {client: np.sort(part) for client, part in zip(clients, parts)}
    return World(Tree(parent, clients, 1 + max(parent)), owned)


@st.composite
def worlds(draw: st.DrawFn, min_clients: int = 1) -> World:
    num_clients = draw(st.integers(min_clients, 7))
    nodes: list[object] = list(range(num_clients))
    while len(nodes) > 1:
        chosen = draw(st.integers(2, len(nodes)))
        nodes = [*nodes[chosen:], nodes[:chosen]]
    sizes = draw(st.lists(st.integers(1, 60), min_size=num_clients, max_size=num_clients))
    return world_of(nodes[0], sizes)


fractions = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
configs = st.builds(
    SharingConfig,
    ratio=st.one_of(fractions, st.lists(fractions, min_size=1, max_size=3).map(tuple)),
    mode=st.sampled_from(["random", "fixed"]),
    max_disclosure=st.one_of(
        st.none(), fractions, st.dictionaries(st.integers(0, 6), fractions, max_size=4)
    ),
    accumulate=st.booleans(),
    reshare=st.booleans(),
)


@given(worlds(), configs, st.integers(0, 5))
def test_nobody_gets_own_samples_or_samples_twice(
    world: World, config: SharingConfig, seed: int
) -> None:
    everything = np.concatenate(list(world.owned.values()))
    for shared in world.rounds(config, 3, seed):
        assert set(shared.pools) == set(world.tree.clusters)
        given = foreign(world.tree, shared.pools, world.owned)
        trained_on = training_sets(world.tree, shared.pools, world.owned)
        for client, own in world.owned.items():
            assert not np.isin(given[client], own).any()
            rows = trained_on[client]
            np.testing.assert_array_equal(rows[: len(own)], own)
            assert len(np.unique(rows)) == len(rows)
            assert np.isin(rows, everything).all(), "only what may be shared, nothing held out"


@given(worlds(min_clients=2), configs, st.integers(0, 5))
def test_nothing_beyond_a_cap_is_ever_disclosed(
    world: World, config: SharingConfig, seed: int
) -> None:
    for shared in world.rounds(config, 6, seed):
        for client, num_disclosed in world.disclosed(shared).items():
            assert num_disclosed <= config.cap_of(client) * len(world.owned[client]) + 1e-9
        left = np.concatenate(list(shared.pools.values()))
        for client, own in world.owned.items():
            if config.cap_of(client) == 0:
                assert not np.isin(left, own).any()


@given(worlds(min_clients=2), configs, st.integers(0, 5))
def test_the_ledger_is_what_was_given(world: World, config: SharingConfig, seed: int) -> None:
    got: dict[NodeId, set[int]] = {client: set() for client in world.owned}
    for shared in world.rounds(config, 4, seed):
        for client, rows in foreign(world.tree, shared.pools, world.owned).items():
            got[client] |= set(rows.tolist())
        ledger = shared.ledger
        disclosed = ledger.disclosed(world.owned)
        for owner, own in world.owned.items():
            to = {c: set(ledger.given(own, c).tolist()) for c in world.owned}
            assert to == {c: rows & set(own.tolist()) for c, rows in got.items()}
            assert set(disclosed[owner].tolist()) == set().union(*to.values())
            assert not to[owner]


@given(worlds(), configs, st.integers(0, 5), st.integers(0, 9))
def test_draws_depend_on_seed_and_round_alone(
    world: World, config: SharingConfig, seed: int, round: int
) -> None:
    one, again = (
        share(world.tree, world.owned, Shared(), config, seed=seed, round=round) for _ in range(2)
    )
    for cluster in world.tree.clusters:
        np.testing.assert_array_equal(one.pools[cluster], again.pools[cluster])


@given(worlds(min_clients=2), st.integers(0, 5))
def test_ratio_0_shares_nothing(world: World, seed: int) -> None:
    for ratio in (0.0, (0.0, 0.0), ()):
        for shared in world.rounds(SharingConfig(ratio=ratio), 3, seed):
            assert set(shared.pools) == set(world.tree.clusters)
            assert not any(map(len, shared.pools.values()))
            assert not any(world.disclosed(shared).values())
            assert traffic(world.tree, shared.pools, world.owned) == (0, 0)


def test_a_client_alone_shares_nothing() -> None:
    world = world_of(0)
    for shared in world.rounds(SharingConfig(ratio=0.5), 3):
        assert shared.pools == {}
        rows = training_sets(world.tree, shared.pools, world.owned)[NodeId(0)]
        np.testing.assert_array_equal(rows, world.owned[NodeId(0)])


def test_fixed_discloses_the_ratio_and_stays_there() -> None:
    world = world_of([[0, 1, 2], [3, 4]])
    history = world.rounds(SharingConfig(ratio=0.1, mode="fixed"), 10)
    for shared in history:
        assert world.disclosed(shared) == dict.fromkeys(world.owned, 10)
        for cluster, rows in history[0].pools.items():
            np.testing.assert_array_equal(shared.pools[cluster], rows)


@pytest.mark.parametrize("mode", ["random", "fixed"])
@pytest.mark.parametrize("ratio", [0.1, (0.05, 0.1), (0.1, 0.5, 0.02)])
def test_by_default_no_more_than_the_ratio_is_ever_disclosed(
    mode: str, ratio: float | tuple[float, ...]
) -> None:
    world = world_of([[0, 1, 2], [3, 4]], 1000)
    config = SharingConfig(ratio=ratio, mode="fixed" if mode == "fixed" else "random")
    most = 1000 * (max(ratio) if isinstance(ratio, tuple) else ratio)
    for shared in world.rounds(config, 20):
        assert 0 < max(world.disclosed(shared).values()) <= most


def test_at_the_cap_the_same_samples_stay_in_use() -> None:
    """What is disclosed cannot be taken back, so that using less of it would protect nobody."""
    world = world_of([[0, 1, 2], [3, 4]], 1000)
    first, *later = world.rounds(SharingConfig(ratio=0.1), 10)
    root, *clusters = world.tree.clusters
    for shared in later:
        for cluster in clusters:
            np.testing.assert_array_equal(shared.pools[cluster], first.pools[cluster])
    assert len({shared.pools[root].tobytes() for shared in later}) > 1, "farther away it is redrawn"


def test_random_without_a_cap_discloses_more_every_round() -> None:
    world = world_of([[0, 1, 2], [3, 4]], 1000)
    history = world.rounds(SharingConfig(ratio=0.1, max_disclosure=1.0), 20)
    for client in world.owned:
        amounts = [world.disclosed(shared)[client] for shared in history]
        assert amounts[0] == 100
        assert all(a < b for a, b in pairwise(amounts))
        assert amounts[-1] > 0.8 * 1000, "most of it after 20 rounds, as the docs warn"


def test_a_cap_ends_the_growth_of_random() -> None:
    world = world_of([[0, 1], [2, 3]], 200)
    caps = {0: 0.0, 1: 0.05, 2: 0.3}
    history = world.rounds(SharingConfig(ratio=0.1, max_disclosure=caps), 12)
    last = world.disclosed(history[-1])
    assert (last[NodeId(0)], last[NodeId(1)], last[NodeId(2)]) == (0, 10, 60)
    assert last[NodeId(3)] == 20, "those not named share the ratio"
    # What is disclosed already goes on being shared.
    parent = world.tree.parent[NodeId(1)]
    assert parent is not None
    assert all(np.isin(world.owned[NodeId(1)], s.pools[parent]).any() for s in history)


def test_what_comes_from_far_away_is_rarer_by_a_factor_per_level() -> None:
    world = world_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]]], 1000)
    (shared,) = world.rounds(SharingConfig(ratio=0.1), 1)
    zero = NodeId(0)
    from_each = [len(shared.ledger.given(own, zero)) for own in world.owned.values()]
    assert from_each[:2] == [0, 100]
    assert sum(from_each[2:4]) == pytest.approx(20, abs=12), "a tenth of a tenth of each"
    assert sum(from_each[2:4]) < 40
    assert sum(from_each[4:]) < sum(from_each[2:4]) / 2
    sizes = {world.tree.level[c]: len(rows) for c, rows in shared.pools.items()}
    assert sizes == {1: 200, 2: 40, 3: 8}


def test_every_level_has_its_ratio_and_the_last_goes_on() -> None:
    world = world_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]]], 1000)
    (shared,) = world.rounds(SharingConfig(ratio=(0.1, 0.5)), 1)
    sizes = {world.tree.level[c]: len(rows) for c, rows in shared.pools.items()}
    assert sizes == {1: 200, 2: 200, 3: 200}
    (none_at_first,) = world.rounds(SharingConfig(ratio=(0.0, 0.5)), 1)
    assert not any(map(len, none_at_first.pools.values()))
    (only_near,) = world.rounds(SharingConfig(ratio=(0.2, 0.0)), 1)
    sizes = {world.tree.level[c]: len(rows) for c, rows in only_near.pools.items()}
    assert sizes == {1: 400, 2: 0, 3: 0}


def test_adaptive_shares_less_where_clients_are_less_alike() -> None:
    world = world_of([[0, 1], [2, 3]])
    root, alike, unlike = world.tree.clusters
    incoherence = {root: 1.0, alike: 0.0, unlike: 3.0}

    def sizes(config: SharingConfig) -> dict[NodeId, int]:
        shared = share(world.tree, world.owned, Shared(), config, seed=0, round=0,
                       incoherence=incoherence)  # fmt: skip
        return {cluster: len(rows) for cluster, rows in shared.pools.items()}

    assert sizes(SharingConfig(ratio=0.2, adaptive=True)) == {root: 5, alike: 40, unlike: 10}
    assert sizes(SharingConfig(ratio=0.2, adaptive=False)) == {root: 16, alike: 40, unlike: 40}


def test_the_ledger_outlives_a_change_of_the_tree() -> None:
    """What was given to an old neighbour stays given, and counts against the cap."""
    config = SharingConfig(ratio=0.1, max_disclosure=0.15)
    apart, joined = world_of([[0, 1], [2, 3]]), world_of([[0, 2], [1, 3]])
    first = share(apart.tree, apart.owned, Shared(), config, seed=0, round=0)
    second = share(joined.tree, apart.owned, first, config, seed=0, round=1)
    for client, own in apart.owned.items():
        for other in apart.owned:
            before = first.ledger.given(own, other)
            assert np.isin(before, second.ledger.given(own, other)).all()
        assert len(second.ledger.disclosed(apart.owned)[client]) <= 15
    assert len(second.ledger.given(apart.owned[NodeId(0)], NodeId(1))) >= 10
    assert len(second.ledger.given(apart.owned[NodeId(0)], NodeId(2))) > 0


def test_sharing_changes_nothing_that_it_was_given() -> None:
    world = world_of([[0, 1], [2, 3]])
    before = world.rounds(SharingConfig(ratio=0.1), 1)[0]
    pools = {c: rows.copy() for c, rows in before.pools.items()}
    received = {c: rows.copy() for c, rows in before.ledger.received.items()}
    share(world.tree, world.owned, before, SharingConfig(ratio=0.1), seed=0, round=1)
    assert all(np.array_equal(before.pools[c], rows) for c, rows in pools.items())
    assert all(np.array_equal(before.ledger.received[c], rows) for c, rows in received.items())


def test_traffic_counts_a_sample_once_up_and_for_everyone_down() -> None:
    world = world_of([[0, 1, 2], 3])
    low = world.tree.clusters[1]
    (shared,) = world.rounds(SharingConfig(ratio=0.1), 1)
    root_pool, low_pool = shared.pools[world.tree.root], shared.pools[low]
    assert (len(low_pool), len(root_pool)) == (30, 3 + 10)
    up, down = traffic(world.tree, shared.pools, world.owned)
    assert up == 30 + 10
    assert down == 3 * (20 + 10) + 3  # two siblings' and client 3's; client 3: what the root has


def test_one_flat_cluster_is_the_plain_case() -> None:
    clients = [NodeId(i) for i in range(4)]
    tree = flat_tree(clients)
    owned = {c: np.arange(50) + 50 * c for c in clients}
    shared = share(tree, owned, Shared(), SharingConfig(ratio=0.2), seed=3, round=0)
    assert len(shared.pools[tree.root]) == 40
    assert [len(rows) for rows in foreign(tree, shared.pools, owned).values()] == [30] * 4


@given(worlds(min_clients=2), configs, st.integers(0, 5))
def test_contributions_tell_who_has_what(world: World, config: SharingConfig, seed: int) -> None:
    """Another client has of a client's samples what the lowest pool above both holds."""
    tree, config = world.tree, replace(config, reshare=False)
    for shared in world.rounds(config, 2, seed):
        found = dict(contributions(tree, shared.pools, world.owned))
        gets = foreign(tree, shared.pools, world.owned)
        for owner in tree.clients:
            above = list(reversed(tree.path(owner)[:-1]))
            counts = dict(zip(above, found.get(owner, [])))
            for other in set(tree.clients) - {owner}:
                meet = next(node for node in above if node in tree.path(other))
                has = int(np.isin(gets[other], world.owned[owner]).sum())
                assert counts.get(meet, 0) == has


def test_who_shares_nothing_contributes_nothing() -> None:
    tree = flat_tree([NodeId(0), NodeId(1)])
    owned = {NodeId(0): np.arange(10), NodeId(1): np.arange(10, 20)}
    assert not list(contributions(tree, {}, owned))
    config = SharingConfig(ratio=0.5, max_disclosure={0: 0.0})
    pools = share(tree, owned, Shared(), config, seed=0, round=1).pools
    assert dict(contributions(tree, pools, owned)) == {1: [5]}


def test_what_those_who_left_were_given_stays_out() -> None:
    """Else a cap would be one until somebody leaves."""
    world, config = world_of([0, 1]), SharingConfig(ratio=0.2, max_disclosure=0.3)
    shared = world.rounds(config, 9)[-1]
    left = shared.ledger.without({NodeId(1)})
    assert list(left.received) == [0]
    for client, rows in shared.ledger.disclosed(world.owned).items():
        np.testing.assert_array_equal(left.disclosed(world.owned)[client], rows)
    again = world_of([0, 2])
    owned = {NodeId(0): world.owned[NodeId(0)], NodeId(2): again.owned[NodeId(2)] + 1000}
    after = Shared({}, left)
    for round in range(9, 20):
        after = share(again.tree, owned, after, config, seed=0, round=round)
    assert len(after.ledger.disclosed(owned)[NodeId(0)]) == 30
