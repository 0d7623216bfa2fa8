"""FedAvg and HypCluster against plain code, and against each other."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sofa_fl.methods.method
from sofa_fl.engine.base import LocalConfig, answered, batch_order
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.experiment.run.config import Config
from sofa_fl.federation import Federation
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.baselines.hypcluster import HypCluster
from sofa_fl.methods.clustered import choose, clusters_tree
from sofa_fl.methods.config import HypClusterConfig
from sofa_fl.methods.method import Notes, View
from sofa_fl.methods.registry import built_in_methods, find_method, make_method
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.models.flat import Vector, as_vector
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import build
from sofa_fl.seeding import seed_for
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId, flat_tree
from tests.engine.cases import DATA, MLP
from tests.engine.quadratic import quadratic_data
from tests.methods.cases import after_rounds, assert_equal, federation

NO_SHARING = SharingConfig(ratio=0)
LOCAL = LocalConfig(batches=4, batch_size=16, learning_rate=1e-2, prior=False)


def plain_training(start: nn.Module, fed: Federation, client: int, round: int) -> list[np.ndarray]:
    """Local training of one round, as anybody would write it."""
    network = MLP()
    network.load_state_dict(start.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2, weight_decay=1e-4)
    rows = fed.owned[NodeId(client)]
    batches = fed.local.batches if round else fed.warmup
    seed = seed_for(fed.seed, round, client, "train")
    for batch in batch_order(len(rows), batches, 16, seed):
        x = torch.from_numpy(DATA.train.x[rows[batch]].astype(np.float32))
        loss = nn.functional.cross_entropy(
            network(x * DATA.train.scale + DATA.train.shift),
            torch.from_numpy(DATA.train.y[rows[batch]]),
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return [p.detach().numpy() for p in network.parameters()]


@pytest.mark.parametrize("num_clients", [1, 4])
def test_fedavg_is_plain_training_and_averaging(num_clients: int) -> None:
    """With one client it is plain training."""
    data = replace(DATA, clients=DATA.clients[:num_clients])
    fed = Federation(data, SequentialEngine(MLP, data, LOCAL), LOCAL, seed=5, warmup=3)
    network = build(MLP, seed_for(5, 0, "initial"))
    for round in range(3):
        trained = [plain_training(network, fed, c, round) for c in range(num_clients)]
        sizes = [len(client.train) for client in data.clients]
        with torch.no_grad():
            for i, parameter in enumerate(network.parameters()):
                average = np.average([t[i] for t in trained], axis=0, weights=sizes)
                parameter.copy_(torch.from_numpy(average))
    state = after_rounds(FedAvg(NO_SHARING), fed, 2)
    expected = FlatNetwork(network).vector
    for served in FedAvg(NO_SHARING).view(state).served.values():
        torch.testing.assert_close(served, expected, rtol=1e-4, atol=1e-5)
    assert float((expected - fed.initial()).norm()) > 0.1


@pytest.mark.parametrize("sharing", [NO_SHARING, SharingConfig(ratio=0.3)])
def test_hypcluster_of_one_is_fedavg_bit_for_bit(sharing: SharingConfig) -> None:
    one = HypCluster(HypClusterConfig(num_clusters=1), sharing)
    states = [after_rounds(method, federation(), 3) for method in (FedAvg(sharing), one)]
    assert_equal(*states)


def test_fedavg_serves_one_model_to_all() -> None:
    view = FedAvg(NO_SHARING).view(after_rounds(FedAvg(NO_SHARING), federation(), 2))
    first = as_vector(view.served[NodeId(0)])
    assert all(torch.equal(as_vector(model), first) for model in view.served.values())
    assert view.tree == flat_tree(view.tree.clients)
    assert set(view.models) == {view.tree.root}
    torch.testing.assert_close(as_vector(view.models[view.tree.root]), first)


def test_hypcluster_finds_groups_far_apart() -> None:
    """Both models get to a group of their own when the start lets them."""
    centres = np.repeat(np.array([[9.0, 0.0], [-9.0, 0.0]]), 3, axis=0)
    data, engine = quadratic_data(centres, num_samples=20)
    clients = tuple(data.clients[i] for i in (0, 3, 1, 4, 2, 5))  # dealt out in turn
    data = replace(data, clients=clients)
    fed = Federation(data, engine, replace(LOCAL, batches=40), warmup=40)
    method = HypCluster(HypClusterConfig(num_clusters=2), NO_SHARING)
    state = after_rounds(method, fed, 2)
    assert [state.choice[c] for c in fed.clients] == [0, 1, 0, 1, 0, 1]
    served = {c: as_vector(model) for c, model in method.view(state).served.items()}
    assert float(served[NodeId(0)][0]) == pytest.approx(9, abs=0.3)
    assert float(served[NodeId(1)][0]) == pytest.approx(-9, abs=0.3)
    assert len(method.view(state).tree.clusters) == 3


def test_a_model_that_nobody_chose_stays_as_it_is() -> None:
    fed = federation(2)
    method = HypCluster(HypClusterConfig(num_clusters=3), NO_SHARING)
    state, _ = method.init(fed.at(0))
    after, _ = method.round(state, fed.at(1))
    for index, (before, now) in enumerate(zip(state.models, after.models)):
        assert torch.equal(before, now) == (index not in state.choice.values())


def test_choose_takes_the_lowest_held_out_loss() -> None:
    fed = federation()
    models = [fed.initial(i) * 3 for i in range(4)]
    choice = choose(models, fed.clients, fed)
    for client in fed.clients:
        losses = [score.loss for score in fed.held_out([(client, model) for model in models])]
        assert choice[client] == int(np.argmin(losses))
    assert len(set(choice.values())) > 1


@pytest.mark.parametrize(
    ("choice", "clusters"),
    [
        ([0, 0, 0], [{0, 1, 2}]),
        ([2, 2, 2], [{0, 1, 2}]),
        ([0, 0, 1, 1], [{0, 1, 2, 3}, {0, 1}, {2, 3}]),
        ([0, 0, 1], [{0, 1, 2}, {0, 1}]),
        ([0, 1, 2], [{0, 1, 2}]),
        ([0], []),
    ],
)
def test_the_tree_has_a_cluster_for_every_model_of_two_or_more(
    choice: list[int], clusters: list[set[int]]
) -> None:
    tree = clusters_tree({NodeId(i): k for i, k in enumerate(choice)})
    assert [set(tree.clients_of(cluster)) for cluster in tree.clusters] == clusters
    assert tree.is_compact


def test_methods_by_name() -> None:
    assert isinstance(make_method(Config()), Sofa)
    assert isinstance(make_method(Config(method="fedavg")), FedAvg)
    three = make_method(Config(method="hypcluster"))
    assert isinstance(three, HypCluster)
    assert three.config.num_clusters == 3
    for name in built_in_methods():
        info = find_method(name)
        assert type(make_method(Config(method=name))) is info.factory
        assert info.name == name, "a method is registered under the name of its file"
        if info.config is not None:
            assert type(getattr(Config(), info.section)) is info.config


def test_the_method_in_the_docstring_works() -> None:
    text = sofa_fl.methods.method.__doc__ or ""
    code = re.search(r"^    class LocalOnly:.*?(?=^\S)", text, re.DOTALL | re.MULTILINE)
    assert code is not None
    names: dict[str, Any] = {
        thing.__name__: thing for thing in (Federation, NodeId, Notes, View, answered, flat_tree)
    }
    names["Vector"] = Vector
    exec(textwrap.dedent(code[0]), names)
    method, fed = names["LocalOnly"](), federation()
    view = method.view(after_rounds(method, fed, 2))
    start = fed.initial()
    for client in fed.clients:
        for round in range(3):
            (outcome,) = fed.at(round).train([fed.at(round).task(client, start)])
            assert outcome is not None
            start = outcome.params
        assert torch.equal(as_vector(view.served[client]), start)
        start = fed.initial()
