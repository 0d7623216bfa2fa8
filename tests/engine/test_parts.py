"""Tasks that train a part of a network, or by a constant gradient, are the same on every engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sofa_fl.engine.base import Pull, batch_order, constant_gradient
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.errors import ModelError
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import Mlp, build
from tests.engine.cases import (
    DATA,
    LOCAL,
    MLP,
    NETWORKS,
    EngineCase,
    assert_same,
    distance,
    running,
    task,
)
from tests.engine.quadratic import quadratic_data


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_only_the_named_part_is_trained(case: EngineCase, network: str) -> None:
    """The head, or all below it, as the same entries would be if the others could not move."""
    factory = NETWORKS[network]
    with running(case, factory) as engine:
        start, n = engine.initial(0), engine.num_trainable
        body = n - engine.num_head
        assert 0 < engine.num_head < n
        whole = task(start, 1, seed=4)
        head, below = replace(whole, part="head"), replace(whole, part="body")
        pulled = replace(head, pulls=(Pull(engine.initial(3), 0.2),))
        outcomes = engine.train([head, below, whole, pulled])
        in_head, in_body, everywhere, held = (outcome.params for outcome in outcomes)
        for after in (in_head, held):
            assert torch.equal(after[:body], start[:body])
            assert not torch.equal(after[body:n], start[body:n])
        assert torch.equal(in_body[body:n], start[body:n])
        assert not torch.equal(in_body[:body], start[:body])
        assert not torch.equal(held, in_head)
        assert not torch.equal(everywhere[body:n], in_head[body:n])
        plain = SequentialEngine(factory, DATA, LOCAL)
        assert_same(outcomes, plain.train([head, below, whole, pulled]), case)


def test_training_the_head_is_training_on_features(case: EngineCase) -> None:
    """By plain torch: the features do not move, and the last layer is fitted to them."""
    local = replace(LOCAL, optimizer="sgd", momentum=0.0)
    with running(case, local=local) as engine:
        start = engine.initial(0)
        asked = replace(task(start, 1, seed=4), part="head")
        (outcome,) = engine.train([asked])
    network = build(MLP, 0)
    assert isinstance(network, Mlp)
    flat = FlatNetwork(network)
    flat.load(start)
    below, last = network.body, network.out
    optimizer = torch.optim.SGD(last.parameters(), lr=1e-2, weight_decay=1e-4)
    order = batch_order(len(asked.samples), asked.batches, local.batch_size, asked.seed)
    for batch in asked.samples[order]:
        x = torch.from_numpy(DATA.train.x[batch].astype(np.float32))
        x = x * DATA.train.scale + DATA.train.shift
        with torch.no_grad():
            features = below(x)
        loss = nn.functional.cross_entropy(last(features), torch.from_numpy(DATA.train.y[batch]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert distance(outcome.params, flat.vector) < 1e-4


def test_opposite_pulls_are_a_constant_gradient(case: EngineCase) -> None:
    """One step of plain descent moves by it, on top of what the loss does."""
    local = replace(LOCAL, optimizer="sgd", momentum=0.0)
    with running(case, local=local) as engine:
        start, plus, minus = (engine.initial(seed) for seed in range(3))
        plain = task(start, 1, seed=4, batches=1)
        tilted = replace(plain, pulls=constant_gradient(plus, minus))
        with_it, without = engine.train([tilted, plain])
        expected = without.params - local.learning_rate * (plus - minus)
        torch.testing.assert_close(with_it.params, expected, rtol=1e-4, atol=1e-6)


def test_a_network_of_one_layer_has_no_parts() -> None:
    flat = FlatNetwork(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)))
    assert flat.num_head == flat.num_trainable == 10
    with pytest.raises(ModelError, match="cannot be divided into a body and a head"):
        flat.span("head")


def test_the_head_is_the_layer_registered_last() -> None:
    flat = FlatNetwork(NETWORKS["cnn with BatchNorm"]())
    last = flat.network.get_submodule(list(flat.places)[len(flat.weights) - 1].rpartition(".")[0])
    assert isinstance(last, nn.Linear)
    assert flat.num_head == sum(p.numel() for p in last.parameters())


def test_parts_in_closed_form() -> None:
    _, engine = quadratic_data(np.zeros((1, 5)))
    start = engine.initial(0)
    whole = task(start, samples=np.arange(20))
    done = {
        part: engine.train([replace(whole, part=part)])[0].params
        for part in ("all", "body", "head")
    }
    assert torch.equal(done["head"], torch.cat([start[:3], done["all"][3:]]))
    assert torch.equal(done["body"], torch.cat([done["all"][:3], start[3:]]))
    tilted = replace(whole, batches=1, pulls=constant_gradient(torch.ones(5), torch.zeros(5)))
    (plain,) = engine.train([replace(whole, batches=1)])
    (moved,) = engine.train([tilted])
    torch.testing.assert_close(moved.params, plain.params - engine.rate / 2)
