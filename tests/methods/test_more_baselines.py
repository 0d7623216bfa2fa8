"""Baselines beside FedAvg against what they must equal, in closed form and on a network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import LocalConfig
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.errors import ConfigError
from sofa_fl.federation import Federation
from sofa_fl.methods.baselines.apfl import Apfl
from sofa_fl.methods.baselines.fedadam import FedAdam
from sofa_fl.methods.baselines.fedala import FedAla, clipped, weights_of
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.baselines.fedrep import FedRep
from sofa_fl.methods.baselines.fedrod import FedRod
from sofa_fl.methods.baselines.fedyogi import FedYogi
from sofa_fl.methods.baselines.hypcluster import HypCluster
from sofa_fl.methods.baselines.hypcluster_restarts import HypClusterRestarts, equal_shares, loss_of
from sofa_fl.methods.baselines.local import Local
from sofa_fl.methods.baselines.scaffold import Scaffold, mean_control
from sofa_fl.methods.config import (
    ApflConfig,
    FedAlaConfig,
    FedOptConfig,
    FedRepConfig,
    FedRodConfig,
    HypClusterConfig,
)
from sofa_fl.methods.method import Method
from sofa_fl.models.flat import Vector, as_vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId
from tests.engine.cases import DATA, MLP
from tests.engine.quadratic import QuadraticEngine, quadratic_data
from tests.methods.cases import LOCAL, after_rounds, assert_equal, federation

NO_SHARING = SharingConfig(ratio=0)
SGD = LocalConfig(batches=6, batch_size=16, optimizer="sgd", learning_rate=0.1, prior=False)


def served(method: Method[Any], fed: Federation, rounds: int = 3) -> list[Vector]:
    view = method.view(after_rounds(method, fed, rounds))
    return [as_vector(view.served[client]) for client in fed.clients]


def with_batches(fed: Federation, batches: int) -> Federation:
    """The same federation with another budget, the warm-up's included."""
    return replace(fed, local=replace(fed.local, batches=batches), warmup=batches)


def on_a_network(local: LocalConfig = SGD) -> Federation:
    return Federation(DATA, SequentialEngine(MLP, DATA, local), local, seed=5, warmup=6)


def assert_close(some: list[Vector], others: list[Vector]) -> None:
    for one, other in zip(some, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_apfl_without_a_personal_share_is_fedavg_on_half_the_budget() -> None:
    fed = with_batches(federation(), 10)
    apfl = served(Apfl(ApflConfig(alpha=0), NO_SHARING), fed)
    assert_equal(apfl, served(FedAvg(NO_SHARING), with_batches(fed, 5)))


@pytest.mark.parametrize("local", [SGD, replace(SGD, optimizer="adam", learning_rate=0.01)])
def test_apfl_that_is_all_personal_is_local_training_on_half_the_budget(
    local: LocalConfig,
) -> None:
    fed = on_a_network(local)
    apfl = served(Apfl(ApflConfig(alpha=1), NO_SHARING), fed)
    assert_close(apfl, served(Local(NO_SHARING), with_batches(fed, 3)))


def test_apfl_moves_the_personal_model_by_its_own_gradient() -> None:
    """One step of descent from v, by alpha times the gradient of the mixture."""
    fed = with_batches(federation(1), 2)
    method = Apfl(ApflConfig(alpha=0.25), NO_SHARING)
    state, _ = method.init(fed.at(0))
    after, _ = method.round(state, fed.at(1))
    v, (w,) = state.personal[NodeId(0)], state.average.models
    assert isinstance(fed.engine, QuadraticEngine)
    centre = torch.from_numpy(fed.engine.points[fed.owned[NodeId(0)]].mean(axis=0))
    gradient = 2 * (0.25 * v + 0.75 * w - centre)
    expected = v - LOCAL.learning_rate * 0.25 * gradient
    torch.testing.assert_close(after.personal[NodeId(0)], expected)


def test_fedrep_that_shares_all_layers_is_fedavg_on_the_batches_for_the_body() -> None:
    fed = with_batches(federation(), 9)
    assert isinstance(fed.engine, QuadraticEngine)
    fed = replace(fed, engine=replace(fed.engine, num_head=0))
    method = FedRep(FedRepConfig(head_share=1 / 3), NO_SHARING)
    assert_equal(served(method, fed), served(FedAvg(NO_SHARING), with_batches(fed, 6)))


def test_fedrep_has_one_body_and_heads_that_fit_their_clients() -> None:
    fed = with_batches(federation(), 300)
    models = served(FedRep(FedRepConfig(head_share=0.5), NO_SHARING), fed, 1)
    for client, model in zip(fed.clients, models):
        assert torch.equal(model[:4], models[0][:4])
        assert isinstance(fed.engine, QuadraticEngine)
        centre = fed.engine.points[fed.owned[client]].mean(axis=0)
        np.testing.assert_allclose(model[4:], centre[4:], atol=1e-4)


def test_fedala_with_weights_of_one_is_fedavg_bit_for_bit() -> None:
    fed = on_a_network()
    assert_equal(
        served(FedAla(FedAlaConfig(share=0), NO_SHARING), fed), served(FedAvg(NO_SHARING), fed)
    )


def test_fedala_starts_from_the_global_body_and_the_best_head_between() -> None:
    """In closed form the best of the box is, entry by entry, the nearest to the client's mean."""
    fed = with_batches(federation(), 400)
    method = FedAla(FedAlaConfig(share=0.5), NO_SHARING)
    state, _ = method.init(fed.at(0))
    (average,) = state.average.models
    for client in fed.clients:
        assert isinstance(fed.engine, QuadraticEngine)
        centre = torch.from_numpy(fed.engine.points[fed.owned[client]].mean(axis=0))
        start = state.starts[client]
        assert torch.equal(start[:4], average[:4])
        # Trained for long, a client's own head is its mean, so no weight of the global one is left.
        torch.testing.assert_close(start[4:], centre[4:], rtol=0, atol=1e-3)
        assert (state.weights[client] < 0.01).all()


def test_weights_lie_between_the_two_heads() -> None:
    own, average = torch.tensor([0.0, 1.0, 2.0, 5.0]), torch.tensor([4.0, -1.0, 2.0, 6.0])
    head = clipped(torch.tensor([1.0, 3.0, 9.0, 8.0]), own, average)
    assert head.tolist() == [1.0, 1.0, 2.0, 6.0]
    weights = weights_of(head, own, average)
    assert weights.tolist() == [0.25, 0.0, 1.0, 1.0]
    torch.testing.assert_close(torch.lerp(own, average, weights), head)


def test_the_generic_model_of_fedrod_is_fedavg_with_a_balanced_loss() -> None:
    """On its share of the budget; the run's own correction of class mixes is just that loss."""
    fed = on_a_network()
    state = after_rounds(FedRod(FedRodConfig(head_share=0.5), NO_SHARING), fed, 2)
    balanced = on_a_network(replace(SGD, prior=True))
    expected = after_rounds(FedAvg(NO_SHARING), with_batches(balanced, 3), 2)
    assert_equal(state.average.models, expected.models)
    plain = after_rounds(FedAvg(NO_SHARING), with_batches(fed, 3), 2)
    assert not torch.equal(plain.models[0], expected.models[0])


def test_personal_heads_of_fedrod_are_added_to_generic_ones() -> None:
    """A personal head is what the last layer learned on a body that stayed as it was."""
    fed = with_batches(federation(), 600)
    state, _ = FedRod(FedRodConfig(head_share=0.99), NO_SHARING).init(fed.at(0))
    for client in fed.clients:
        (generic,) = fed.at(0).train([fed.at(0).task(client, fed.initial(), batches=6)])
        assert generic is not None
        model = state.served[client]
        torch.testing.assert_close(model[:4], generic.params[:4])
        torch.testing.assert_close(model[4:], generic.params[4:] + state.heads[client])
        assert isinstance(fed.engine, QuadraticEngine)
        centre = fed.engine.points[fed.owned[client]].mean(axis=0)
        np.testing.assert_allclose(model[4:], centre[4:], atol=1e-4)


@pytest.mark.parametrize("kind", [FedAdam, FedYogi])
def test_a_server_that_remembers_nothing_is_fedavg(kind: type[FedAdam]) -> None:
    """With a second moment that stays what it is at first, and a rate that makes up for it."""
    config = FedOptConfig(rate=2e-3, beta1=0.0, beta2=1.0, adaptivity=1e-3)
    fed = on_a_network()
    assert_close(served(kind(config, NO_SHARING), fed), served(FedAvg(NO_SHARING), fed))


@pytest.mark.parametrize("kind", [FedAdam, FedYogi])
def test_two_rounds_of_a_server_by_hand(kind: type[FedAdam]) -> None:
    config = FedOptConfig(rate=0.1, beta1=0.8, beta2=0.7, adaptivity=0.01)
    fed, x = federation(), federation().initial().double()
    m, v = torch.zeros_like(x), torch.full_like(x, 0.01**2)
    for round in range(2):
        now = fed.at(round)
        tasks = [now.task(client, x.float()) for client in now.clients]
        models = {c: out.params for c, out in zip(now.clients, now.train(tasks)) if out}
        update = now.mean(models).double() - x
        m = 0.8 * m + 0.2 * update
        if kind is FedYogi:
            v = v - 0.3 * update**2 * torch.sign(v - update**2)
        else:
            v = 0.7 * v + 0.3 * update**2
        x = x + 0.1 * m / (v.sqrt() + 0.01)
    state = after_rounds(kind(config, NO_SHARING), fed, 1)
    torch.testing.assert_close(state.average.models[0].double(), x, rtol=1e-4, atol=1e-5)


def test_scaffold_without_controls_is_fedavg() -> None:
    """So it is in the warm-up, and not after it."""
    fed = on_a_network()
    for rounds, same in ((0, True), (1, False)):
        one, other = (
            after_rounds(method, fed, rounds)
            for method in (Scaffold(NO_SHARING), FedAvg(NO_SHARING))
        )
        assert torch.equal(one.average.models[0], other.models[0]) is same


def test_controls_are_mean_gradients_and_so_is_their_sum() -> None:
    """Where the global model is best, gradients cancel out, and no client drifts from it."""
    fed = with_batches(federation(), 5)
    method = Scaffold(NO_SHARING)
    state = after_rounds(method, fed, 60)
    (best,) = state.average.models
    assert isinstance(fed.engine, QuadraticEngine)
    centres = [fed.engine.points[fed.owned[c]].mean(axis=0) for c in fed.clients]
    sizes = [fed.size(c) for c in fed.clients]
    np.testing.assert_allclose(best, np.average(centres, axis=0, weights=sizes), atol=1e-3)
    for client, centre in zip(fed.clients, centres):
        gradient = 2 * (best.numpy() - centre)
        np.testing.assert_allclose(state.controls[client], gradient, atol=1e-2)
        assert np.abs(gradient).max() > 0.5, "alone it would drift away"
    everyone = mean_control(state.controls, fed)
    assert everyone is not None
    np.testing.assert_allclose(everyone, np.zeros(6), atol=1e-2)
    _, notes = method.round(state, fed.at(61))
    for losses in notes.local_loss.values():
        assert np.ptp(losses) < 1e-2


def test_the_mean_control_counts_those_who_have_none() -> None:
    fed = federation(2)
    half = {NodeId(0): torch.ones(6)}
    expected = fed.size(NodeId(0)) / (fed.size(NodeId(0)) + fed.size(NodeId(1)))
    found = mean_control(half, fed)
    assert found is not None
    torch.testing.assert_close(found, torch.full((6,), expected))


def test_scaffold_needs_plain_descent() -> None:
    for local in (replace(SGD, optimizer="adam"), replace(SGD, momentum=0.9)):
        with pytest.raises(ConfigError, match=r"set local.optimizer=sgd"):
            Scaffold(NO_SHARING).init(on_a_network(local).at(0))


def test_one_start_is_hypcluster() -> None:
    config = HypClusterConfig(num_clusters=3, restarts=1)
    state = after_rounds(HypClusterRestarts(config, NO_SHARING), federation(), 3)
    assert_equal(state.starts, (after_rounds(HypCluster(config, NO_SHARING), federation(), 3),))


def test_the_best_start_is_kept() -> None:
    """By held-out loss; it is found where a single start stays in a bad one."""
    centres = np.repeat(np.array([[9.0, 0.0], [-9.0, 0.0], [0.0, 9.0]]), 4, axis=0)
    data, engine = quadratic_data(centres, num_samples=20)
    fed = Federation(data, engine, replace(LOCAL, batches=40), warmup=40)
    config = HypClusterConfig(num_clusters=3, restarts=4, search_rounds=2)
    method = HypClusterRestarts(config, NO_SHARING)
    state, _ = method.init(fed.at(0))
    assert len(state.starts) == 4
    losses = [loss_of(start, fed) for start in state.starts]
    assert losses == sorted(losses)
    assert losses[0] < losses[-1], "or there is nothing to choose"
    state, _ = method.round(state, fed.at(1))
    before, _ = method.round(state, fed.at(2))
    assert len(state.starts) == 4
    assert len(before.starts) == 1
    assert loss_of(before.starts[0], fed) <= min(loss_of(start, fed) for start in state.starts)
    (kept,) = method.round(before, fed.at(3))[0].starts
    assert kept.models[0].shape == (2,)


def test_starts_share_one_budget() -> None:
    assert equal_shares(25, 3) == [8, 8, 9]
    assert equal_shares(2, 4) == [1, 1, 1, 1]
    for batches in range(4, 30):
        assert sum(equal_shares(batches, 4)) == batches
