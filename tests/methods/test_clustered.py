"""CFL, FL+HC, HierFAVG and the oracle against FedAvg and against what they must find."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
import torch

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.engine.base import LocalConfig
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.errors import ConfigError, DataError
from sofa_fl.federation import Federation
from sofa_fl.methods.baselines.cfl import Cfl, bipartition, is_at_rest
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.baselines.fl_hc import FlHc, clusters_of
from sofa_fl.methods.baselines.hierfavg import HierFavg
from sofa_fl.methods.baselines.hypcluster import HypCluster
from sofa_fl.methods.baselines.oracle import Oracle
from sofa_fl.methods.clustered import update_products
from sofa_fl.methods.config import (
    CflConfig,
    FlHcConfig,
    HierFavgConfig,
    HypClusterConfig,
    OracleConfig,
)
from sofa_fl.methods.method import Method
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.flat import as_vector
from sofa_fl.models.networks import network_factory
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.space import Floats
from sofa_fl.topology.tree import NodeId
from tests.engine.quadratic import quadratic_data
from tests.methods.cases import after_rounds, assert_equal, federation

NONE = SharingConfig(ratio=0)
SOME = SharingConfig(ratio=0.3)
LOCAL = LocalConfig(batches=20, batch_size=50, learning_rate=2e-3)
sharings = pytest.mark.parametrize("sharing", [NONE, SOME], ids=["alone", "shared"])


def products_of(vectors: Floats) -> Floats:
    return vectors @ vectors.T


# FedAvg, where nothing is to be told apart


@sharings
@pytest.mark.parametrize(
    "make",
    [
        lambda sharing: Cfl(CflConfig(stationary=0, deviation=0), sharing),
        lambda sharing: Cfl(CflConfig(stationary=1, deviation=1), sharing),
        lambda sharing: FlHc(FlHcConfig(rounds=1, threshold=1), sharing),
        lambda sharing: FlHc(FlHcConfig(rounds=9), sharing),
        lambda sharing: HierFavg(HierFavgConfig(num_edges=1, period=3), sharing),
    ],
    ids=["cfl that never rests", "cfl that never parts", "one cluster", "later", "one edge"],
)
def test_it_is_fedavg_bit_for_bit(make: Any, sharing: SharingConfig) -> None:
    method: Method[Any] = make(sharing)
    assert_equal(
        after_rounds(method, federation(), 4), after_rounds(FedAvg(sharing), federation(), 4)
    )


@pytest.mark.parametrize("method", [Cfl(CflConfig(), NONE), FlHc(FlHcConfig(rounds=1), NONE)])
def test_clients_of_the_same_data_stay_together(method: Method[Any]) -> None:
    data, engine = quadratic_data(np.ones((5, 3)), num_samples=20, noise=0)
    fed = Federation(data, engine, replace(LOCAL, batches=3), warmup=3)
    assert_equal(after_rounds(method, fed, 4), after_rounds(FedAvg(NONE), fed, 4))


def test_hierfavg_whose_cloud_averages_every_round_is_fedavg_to_rounding() -> None:
    """Means of means: the sum is another one, so the last bits are too."""
    method = HierFavg(HierFavgConfig(num_edges=4, period=1), NONE)
    ours = method.view(after_rounds(method, federation(), 4)).served
    theirs = FedAvg(NONE).view(after_rounds(FedAvg(NONE), federation(), 4)).served
    for client, model in ours.items():
        torch.testing.assert_close(as_vector(model), as_vector(theirs[client]))


# Groups of rotated images, with real networks


@cache
def rotated(num_rotations: int, num_swaps: int, num_clients: int) -> Federation:
    config = DataConfig(
        partition="groups",
        num_rotations=num_rotations,
        num_swaps=num_swaps,
        num_clients=num_clients,
        num_train=400 * num_clients,
        num_test=10 * num_clients,
    )
    data = federate(config, 0)
    network = network_factory(ModelConfig(name="mlp", hidden=64), data.train.x.shape[1:], 10)
    engine = SequentialEngine(network, data, LOCAL)
    return Federation(data, engine, LOCAL, warmup=LOCAL.batches)


@pytest.mark.parametrize("rotations_and_swaps", [(2, 1), (1, 2)], ids=["rotated", "relabelled"])
@pytest.mark.parametrize(
    "method",
    [
        HypCluster(HypClusterConfig(num_clusters=2), NONE),
        Cfl(CflConfig(), NONE),
        FlHc(FlHcConfig(rounds=2), NONE),
        FlHc(FlHcConfig(rounds=2, metric="cosine", linkage="average"), NONE),
    ],
    ids=["hypcluster", "cfl", "fl_hc", "fl_hc by angle"],
)
def test_it_finds_two_groups_of_mnist(
    method: Method[Any], rotations_and_swaps: tuple[int, int]
) -> None:
    fed = rotated(*rotations_and_swaps, num_clients=6)
    state = after_rounds(method, fed, 6)
    choice = [state.choice[client] for client in fed.clients]
    assert len(set(choice[:3])) == len(set(choice[3:])) == 1
    assert choice[0] != choice[3]


def test_cfl_takes_one_group_apart_after_the_other() -> None:
    fed = rotated(3, 1, num_clients=9)
    method = Cfl(CflConfig(), NONE)
    tree = method.view(after_rounds(method, fed, 8)).tree
    found = [set(tree.clients_of(cluster)) for cluster in tree.clusters]
    assert all(set(range(i, i + 3)) in found for i in (0, 3, 6))
    assert (len(found), tree.depth) == (5, 3), "every split has two parts, one below the other"


# CFL


def cross_similarity(products: Floats, leave: tuple[bool, ...]) -> float:
    norms = np.sqrt(np.diag(products))
    pairs = [(i, j) for i, j in np.ndindex(*products.shape) if leave[i] and not leave[j]]
    return max(float(products[i, j] / norms[i] / norms[j]) for i, j in pairs)


@pytest.mark.parametrize("seed", range(20))
def test_no_bipartition_has_a_smaller_largest_similarity(seed: int) -> None:
    rng = np.random.default_rng(seed)
    products = products_of(rng.normal(size=(rng.integers(2, 8), 4)) + 0.3)
    leave, similarity = bipartition(products)
    assert not leave[0]
    assert leave.any()
    others = itertools.product([False, True], repeat=len(products) - 1)
    best = min(cross_similarity(products, (False, *other)) for other in others if any(other))
    assert similarity == pytest.approx(cross_similarity(products, tuple(leave.tolist())))
    assert similarity == pytest.approx(best)


def test_a_bipartition_of_those_who_are_all_alike_still_has_two_parts() -> None:
    leave, similarity = bipartition(np.ones((4, 4)))
    assert 0 < leave.sum() < 4
    assert similarity == pytest.approx(1)
    leave, similarity = bipartition(np.zeros((3, 3)))  # nobody moved
    assert 0 < leave.sum() < 3


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_cluster_is_at_rest_when_updates_cancel_out_whatever_their_length(scale: float) -> None:
    even, odd = np.ones(2), np.array([3.0, 1.0])
    opposed = scale * products_of(np.array([[1.0, 0.0], [-1.0, 0.1]]))
    together = scale * products_of(np.array([[1.0, 0.0], [0.9, 0.1]]))
    assert is_at_rest(opposed, even, 0.35)
    assert not is_at_rest(opposed, odd, 0.35), "one has more samples and wins"
    assert not is_at_rest(together, even, 0.35)
    assert not is_at_rest(opposed, even, 0)
    assert not is_at_rest(opposed[:1, :1], even[:1], 1), "one client alone"


def test_parts_are_the_means_of_their_clients_from_the_same_start() -> None:
    fed = federation()
    method = Cfl(CflConfig(stationary=1, deviation=0), NONE)
    state = method.start(fed)
    outcomes = method.local_update(state, fed)
    after = method.cluster_update(state, outcomes, fed)
    assert set(after.choice.values()) == {0, 1}
    for index, model in enumerate(after.models):
        part = {c: outcomes[c].params for c in fed.clients if after.choice[c] == index}
        assert torch.equal(model, fed.mean(part))
    assert after.choice[NodeId(0)] == 0
    assert len(after.tree.clusters) == 1 + sum(
        list(after.choice.values()).count(index) > 1 for index in (0, 1)
    )


def test_split_until_everybody_is_alone() -> None:
    fed = federation()
    method = Cfl(CflConfig(stationary=1, deviation=0), NONE)
    state = after_rounds(method, fed, 12)
    assert sorted(state.choice.values()) == list(range(9))
    assert len(state.tree.clusters) == 8, "a binary tree"
    assert state.tree.is_compact


def test_update_products_are_those_of_the_updates() -> None:
    generator = torch.Generator().manual_seed(0)
    start = 100 * torch.randn(50, generator=generator)
    ends = [start + torch.randn(50, generator=generator) for _ in range(4)]
    updates = torch.stack([end[:40] - start[:40] for end in ends]).double().numpy()
    np.testing.assert_allclose(update_products(start, ends, 40), products_of(updates), atol=1e-9)


# FL+HC


def test_fl_hc_clusters_once() -> None:
    fed = federation()
    method = FlHc(FlHcConfig(rounds=2, threshold=0.3), SOME)
    choices = [after_rounds(method, fed, rounds).choice for rounds in range(5)]
    assert choices[1] == dict.fromkeys(fed.clients, 0)
    assert [choices[2][c] for c in fed.clients] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert choices[2] == choices[3] == choices[4]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("linkage", ["ward", "average", "complete", "single"])
def test_the_threshold_is_a_fraction(linkage: Any, scale: float) -> None:
    positions = np.array([[9.0, 0], [0, 9], [9.1, 0], [0, 9.1], [0, 4]])
    products = scale * products_of(positions)
    for threshold, clusters in [
        (0.0, [0, 1, 2, 3, 4]),
        (0.1, [0, 1, 0, 1, 2]),
        (0.95, [0, 1, 0, 1, 1]),
        (1.0, [0] * 5),
    ]:
        config = FlHcConfig(linkage=linkage, threshold=threshold)
        assert clusters_of(products, config) == clusters
    by_angle = FlHcConfig(metric="cosine", linkage="average")
    assert clusters_of(products, by_angle) == [0, 1, 0, 1, 1]


def test_equal_updates_are_one_cluster() -> None:
    vectors = np.repeat(np.random.default_rng(0).normal(size=(1, 50)), 6, axis=0)
    for config in (FlHcConfig(), FlHcConfig(metric="cosine", linkage="average")):
        assert clusters_of(products_of(vectors), config) == [0] * 6
        assert clusters_of(np.zeros((3, 3)), FlHcConfig()) == [0] * 3
        assert clusters_of(np.ones((1, 1)), config) == [0]


def test_ward_knows_no_angles() -> None:
    with pytest.raises(ConfigError, match=r"needs another fl_hc.linkage"):
        FlHcConfig(metric="cosine")


# HierFAVG


def test_edges_go_their_own_way_until_the_cloud_averages_them() -> None:
    method, fed = HierFavg(HierFavgConfig(num_edges=2, period=3), NONE), federation()
    for rounds, same in enumerate([True, False, False, True, False]):
        state = after_rounds(method, fed, rounds)
        assert torch.equal(*state.models) == same
        assert [state.choice[client] for client in fed.clients] == [0, 1] * 4 + [0]
        torch.testing.assert_close(
            as_vector(method.view(state).models[state.tree.root]),
            fed.mean({client: state.models[state.choice[client]] for client in fed.clients}),
        )


def test_more_edges_than_clients_are_an_edge_for_each() -> None:
    state = after_rounds(HierFavg(HierFavgConfig(num_edges=50), NONE), federation(3), 1)
    assert sorted(state.choice.values()) == [0, 1, 2]
    assert len(state.models) == 3


# The oracle


@dataclass(frozen=True)
class Part(Federation):
    """Some of the clients, under the numbers they have among all."""

    group: tuple[NodeId, ...] = ()

    @cached_property
    def clients(self) -> tuple[NodeId, ...]:
        return self.group


def test_the_oracle_is_fedavg_on_each_group_alone_bit_for_bit() -> None:
    fed = federation()
    method = Oracle(OracleConfig(), NONE)
    served = method.view(after_rounds(method, fed, 3)).served
    for first in (0, 3, 6):
        group = tuple(NodeId(first + i) for i in range(3))
        alone = Part(fed.data, fed.engine, fed.local, fed.seed, fed.warmup, group=group)
        expected = FedAvg(NONE).view(after_rounds(FedAvg(NONE), alone, 3)).served
        assert all(torch.equal(as_vector(served[c]), as_vector(expected[c])) for c in group)


@pytest.mark.parametrize(("level", "num_groups"), [(0, 4), (1, 2)])
def test_the_oracle_takes_the_level_asked_for(level: int, num_groups: int) -> None:
    fed = rotated(2, 2, num_clients=8)
    state = Oracle(OracleConfig(level=level), NONE).start(fed)
    assert tuple(state.choice.values()) == fed.data.truth[level]
    assert len(state.models) == num_groups


def test_the_oracle_says_what_it_needs() -> None:
    fed = federation()
    unknown = replace(fed, data=replace(fed.data, truth=()))
    with pytest.raises(DataError, match=r"known true groups; set data.partition=groups"):
        Oracle(OracleConfig(), NONE).init(unknown)
    with pytest.raises(ConfigError, match=r"oracle.level must be below the 2 levels .* got 2"):
        Oracle(OracleConfig(level=2), NONE).init(fed)
