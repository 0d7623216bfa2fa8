"""Local, fine-tuned FedAvg, FedProx and Ditto against what they must equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from sofa_fl.federation import Federation
from sofa_fl.methods.baselines.ditto import Ditto
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.baselines.fedavg_ft import FedAvgFt
from sofa_fl.methods.baselines.fedprox import FedProx
from sofa_fl.methods.baselines.local import Local
from sofa_fl.methods.config import DittoConfig, FedProxConfig
from sofa_fl.methods.method import Method
from sofa_fl.models.flat import as_vector
from sofa_fl.sharing import SharingConfig
from tests.methods.cases import federation

SHARING = SharingConfig(ratio=0.2)


def served(method: Method[Any], fed: Federation, rounds: int = 3) -> list[torch.Tensor]:
    state, _ = method.init(fed.at(0))
    for round in range(1, rounds + 1):
        state, _ = method.round(state, fed.at(round))
    models = method.view(state).served
    return [as_vector(models[client]) for client in fed.clients]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_fedprox_without_a_pull_is_fedavg() -> None:
    free = FedProx(FedProxConfig(pull=0), SHARING)
    assert same(served(free, federation()), served(FedAvg(SHARING), federation()))


def test_fedprox_holds_clients_back() -> None:
    ends = []
    for pull in (0.0, 1.0, 100.0):
        fed = federation()
        method = FedProx(FedProxConfig(pull=pull), SHARING)
        start = method.start(fed)
        outcomes = method.local_update(start, fed.at(1))
        moved = [float((out.params - start.models[0]).norm()) for out in outcomes.values()]
        ends.append(sum(moved))
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] < 0.1 * ends[0]


def test_ditto_without_a_pull_is_local_on_half_the_budget() -> None:
    fed = federation()
    half = replace(fed.local, batches=fed.local.batches - fed.local.batches // 2)
    alone = replace(fed, local=half, warmup=fed.warmup - fed.warmup // 2)
    free = Ditto(DittoConfig(pull=0), SHARING)
    assert same(served(free, fed), served(Local(SHARING), alone))


def test_ditto_pulls_to_the_global_model() -> None:
    distances = []
    for pull in (0.0, 1.0, 100.0):
        fed = federation()
        method = Ditto(DittoConfig(pull=pull), SHARING)
        state, _ = method.init(fed.at(0))
        centre = state.average.models[0]
        state, _ = method.round(state, fed.at(1))
        distances.append(sum(float((x - centre).norm()) for x in state.personal.values()))
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.25 * distances[0]


def test_tuned_fedavg_has_fedavgs_global_model_and_serves_what_clients_made_of_it() -> None:
    fed = federation()
    plain, tuned = FedAvg(SHARING), FedAvgFt(SHARING)
    average, _ = plain.init(fed.at(0))
    state, _ = tuned.init(fed.at(0))
    outcomes = plain.local_update(average, fed.at(1))
    average, _ = plain.round(average, fed.at(1))
    state, _ = tuned.round(state, fed.at(1))
    assert torch.equal(state.average.models[0], average.models[0])
    for client in fed.clients:
        assert torch.equal(as_vector(tuned.view(state).served[client]), outcomes[client].params)


@pytest.mark.parametrize("sharing", [SharingConfig(ratio=0), SHARING], ids=["alone", "shared"])
def test_local_mixes_no_models(sharing: SharingConfig) -> None:
    """What one client does with its model depends on no other client's model."""
    fed = federation()
    state, _ = Local(sharing).init(fed.at(0))
    changed = replace(state, models={**state.models, fed.clients[0]: fed.initial(9)})
    one, _ = Local(sharing).round(state, fed.at(1))
    other, _ = Local(sharing).round(changed, fed.at(1))
    first, *rest = fed.clients
    assert not torch.equal(one.models[first], other.models[first])
    assert all(torch.equal(one.models[client], other.models[client]) for client in rest)
