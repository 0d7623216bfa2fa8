"""Pools that accumulate, and samples that are passed on: the paper's algorithm, and its caps."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.sharing import Shared, SharingConfig, share, training_sets
from sofa_fl.topology.tree import NodeId, flat_tree
from tests.test_sharing import World, configs, world_of, worlds


def as_the_paper_writes_it(world: World, held: dict[NodeId, set[int]]) -> None:
    """Gather and Distribute of the paper on the datasets `held` of all nodes, with alpha = 1."""

    def gather(cluster: NodeId) -> None:
        for child in world.tree.children.get(cluster, ()):
            gather(child)
            held[cluster] |= held[child]

    def distribute(cluster: NodeId) -> None:
        for child in world.tree.children.get(cluster, ()):
            held[child] |= held[cluster]
            distribute(child)

    gather(world.tree.root)
    distribute(world.tree.root)


@given(worlds(min_clients=2), st.integers(0, 5))
def test_accumulate_and_reshare_are_the_paper_s_algorithm(world: World, seed: int) -> None:
    """With alpha = 1 nothing is left to chance, so that the datasets must be the same."""
    held: dict[NodeId, set[int]] = {cluster: set() for cluster in world.tree.clusters}
    held |= {client: set(rows.tolist()) for client, rows in world.owned.items()}
    config = SharingConfig(ratio=1.0, accumulate=True, reshare=True)
    for shared in world.rounds(config, 2, seed):
        as_the_paper_writes_it(world, held)
        assert {c: set(rows.tolist()) for c, rows in shared.pools.items()} == {
            cluster: held[cluster] for cluster in world.tree.clusters
        }
        trained_on = training_sets(world.tree, shared.pools, world.owned)
        assert {c: set(r.tolist()) for c, r in trained_on.items()} == {
            c: held[c] for c in trained_on
        }


@given(worlds(min_clients=2), configs, st.integers(0, 5))
def test_an_accumulating_pool_loses_nothing(world: World, config: SharingConfig, seed: int) -> None:
    history = world.rounds(replace(config, accumulate=True), 4, seed)
    for before, after in pairwise(history):
        for cluster, rows in before.pools.items():
            assert np.isin(rows, after.pools[cluster]).all()


@given(worlds(min_clients=2), configs, st.integers(0, 5))
def test_without_reshare_a_pool_holds_samples_of_those_below_it(
    world: World, config: SharingConfig, seed: int
) -> None:
    for shared in world.rounds(replace(config, reshare=False), 3, seed):
        for cluster, rows in shared.pools.items():
            below = [world.owned[client] for client in world.tree.clients_of(cluster)]
            assert np.isin(rows, np.concatenate(below)).all()


def test_pools_accumulate_what_is_drawn_in_every_round() -> None:
    world = world_of([0, 1], 1000)
    sizes = [
        [len(shared.pools[world.tree.root]) for shared in world.rounds(config, 3)]
        for config in (
            SharingConfig(ratio=0.1, max_disclosure=1.0),
            SharingConfig(ratio=0.1, max_disclosure=1.0, accumulate=True),
        )
    ]
    assert sizes[0] == [200, 200, 200]
    assert sizes[1][0] == 200
    assert sizes[1][1] == pytest.approx(200 + 0.9 * 200, abs=20), "a tenth of it was there before"
    assert sizes[1][2] == pytest.approx(2 * 1000 * (1 - 0.9**3), abs=30)


def test_reshared_samples_come_from_whoever_was_given_them() -> None:
    """In the second round a pool gets a client's samples although that client sends nothing new."""
    world = world_of([[0, 1], [2, 3]], 1000)
    low = world.tree.parent[NodeId(0)]
    assert low is not None
    plain, passed_on = (
        world.rounds(SharingConfig(ratio=0.1, max_disclosure=1.0, reshare=reshare), 2)[1]
        for reshare in (False, True)
    )
    far = np.concatenate([world.owned[NodeId(2)], world.owned[NodeId(3)]])
    assert not np.isin(plain.pools[low], far).any()
    from_below = np.setdiff1d(passed_on.pools[low], passed_on.pools[world.tree.root])
    assert np.isin(from_below, far).any(), "0 and 1 pass on what the root gave them"
    assert len(passed_on.pools[low]) > len(plain.pools[low])


def test_what_a_client_was_given_does_not_use_up_its_own_cap() -> None:
    world = world_of([0, 1], 100)
    config = SharingConfig(ratio=0.2, reshare=True, max_disclosure={0: 0.5, 1: 1.0})
    last = world.rounds(config, 40)[-1]
    assert world.disclosed(last) == {NodeId(0): 50, NodeId(1): 100}


def test_who_may_disclose_nothing_still_passes_on() -> None:
    world = world_of([[0, 1], [2, 3]], 1000)
    config = SharingConfig(ratio=0.1, reshare=True, max_disclosure={0: 0.0, 1: 0.0})
    last = world.rounds(config, 3)[-1]
    assert world.disclosed(last)[NodeId(0)] == 0
    low = world.tree.parent[NodeId(0)]
    assert low is not None
    assert len(np.setdiff1d(last.pools[low], last.pools[world.tree.root])) > 0


def test_a_cap_holds_for_who_joins_a_pool_that_nobody_was_given() -> None:
    """A client alone discloses nothing, and what its pool holds must still fit its cap."""
    alone, config = world_of([0]), SharingConfig(ratio=0.1, accumulate=True, max_disclosure=0.3)
    shared = alone.rounds(config, 20)[-1]
    assert not any(alone.disclosed(shared).values())
    both = world_of([0, 1])
    owned = {NodeId(0): alone.owned[NodeId(0)], NodeId(1): both.owned[NodeId(1)] + 1000}
    after = share(both.tree, owned, shared, config, seed=0, round=20)
    assert len(after.ledger.disclosed(owned)[NodeId(0)]) == 30


@given(st.booleans(), st.booleans())
def test_what_nobody_owns_any_more_is_not_passed_on(accumulate: bool, reshare: bool) -> None:
    world = world_of([0, 1, 2])
    config = SharingConfig(ratio=0.5, accumulate=accumulate, reshare=reshare)
    shared = world.rounds(config, 2)[-1]
    owned = {**world.owned, NodeId(0): world.owned[NodeId(0)] + 5000}
    after = share(world.tree, owned, shared, config, seed=0, round=2)
    for rows in after.pools.values():
        assert not np.isin(rows, world.owned[NodeId(0)]).any()


def test_with_both_off_random_draws_are_what_they_were() -> None:
    world = world_of([[0, 1, 2], [3, 4]], [30, 40, 50, 60, 70])
    digest = hashlib.sha256()
    caps = {**dict.fromkeys(range(5), 1.0), 1: 0.4}
    config = SharingConfig(ratio=0.3, max_disclosure=caps)
    for shared in world.rounds(config, 4, seed=7):
        for cluster in world.tree.clusters:
            digest.update(shared.pools[cluster].astype(np.int64).tobytes())
    assert digest.hexdigest()[:16] == "6a9cee758297e475"


def test_of_few_samples_one_is_shared_now_and_then() -> None:
    """A client with four samples shares a tenth of them on average, not nothing."""
    tree = flat_tree([NodeId(0), NodeId(1)])
    owned = {NodeId(0): np.arange(4), NodeId(1): np.arange(4, 104)}
    config = SharingConfig(ratio=0.1, max_disclosure=1.0)
    pools = [
        share(tree, owned, Shared(), config, seed=0, round=round).pools[tree.root]
        for round in range(400)
    ]
    small = [int((pool < 4).sum()) for pool in pools]
    assert set(small) == {0, 1}
    assert 0.3 < np.mean(small) < 0.5
    assert {int((pool >= 4).sum()) for pool in pools} == {10}, "of many, exactly a tenth"
