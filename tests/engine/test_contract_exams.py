"""What every engine owes its callers, in scoring: plain torch's numbers, on the samples asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.engine.base import Exam
from sofa_fl.models.flat import Vector
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import Mlp
from tests.engine.cases import DATA, MLP, EngineCase, running, task


@pytest.mark.parametrize("split", ["train", "test"])
def test_an_empty_exam_has_no_score(case: EngineCase, split: str) -> None:
    with running(case) as engine:
        nothing = np.empty(0, dtype=np.int64)
        start = engine.initial(0)
        exams = [Exam(start, nothing, "test" if split == "test" else "train")]
        exams += [Exam(start, np.arange(3))]
        empty, full = engine.evaluate(exams)
        assert np.isnan([empty.loss, empty.accuracy]).all()
        assert (empty.num_samples, full.num_samples) == (0, 3)
        assert np.isfinite(full.loss)


def test_nothing_asked_nothing_done(case: EngineCase) -> None:
    with running(case) as engine:
        assert engine.train([]) == []
        assert engine.evaluate([]) == []


def plain_outputs(params: Vector, arrays: Arrays, rows: slice) -> torch.Tensor:
    """What the network gives, by plain torch code."""
    flat = FlatNetwork(MLP())
    network = MLP()
    network.load_state_dict(flat.state_dict(params))
    x = torch.from_numpy(arrays.x[rows].astype(np.float32) * arrays.scale + arrays.shift)
    with torch.no_grad():
        outputs: torch.Tensor = network.eval()(x)
    return outputs


def test_evaluate_agrees_with_plain_torch(case: EngineCase) -> None:
    """Over more samples than are forwarded at once."""
    with running(case) as engine:
        (outcome,) = engine.train([task(engine.initial(0), 1, batches=10)])
        rows = np.tile(np.arange(211), 3)
        (score,) = engine.evaluate([Exam(outcome.params, rows)])
        out = plain_outputs(outcome.params, DATA.train, slice(None))
        y = torch.from_numpy(DATA.train.y)
        assert score.loss == pytest.approx(float(nn.functional.cross_entropy(out, y)), rel=1e-5)
        assert score.accuracy == pytest.approx(float((out.argmax(dim=1) == y).float().mean()))
        assert score.num_samples == 633
        assert score.accuracy > 0.3


def test_the_split_is_the_one_asked_for(case: EngineCase) -> None:
    with running(case) as engine:
        start = engine.initial(0)
        rows = np.arange(10)
        on_train, on_test = engine.evaluate([Exam(start, rows), Exam(start, rows, "test")])
        out = plain_outputs(start, DATA.test, slice(0, 10))
        loss = nn.functional.cross_entropy(out, torch.from_numpy(DATA.test.y[:10]))
        assert on_test.loss == pytest.approx(float(loss), rel=1e-5)
        assert on_train.loss != on_test.loss


def test_embed_is_the_mean_of_what_the_last_layer_is_given(case: EngineCase) -> None:
    with running(case) as engine:
        models, rows = [engine.initial(i) for i in range(3)], np.arange(20)
        places = engine.embed(models, rows)
        assert places.shape == (3, 16)
        network = MLP()
        assert isinstance(network, Mlp)
        network.load_state_dict(FlatNetwork(MLP()).state_dict(models[1]))
        x = DATA.train.x[rows].astype(np.float32) * DATA.train.scale + DATA.train.shift
        with torch.no_grad():
            features = network.body(torch.from_numpy(x)).mean(dim=0)
        np.testing.assert_allclose(places[1], features.numpy(), rtol=1e-4, atol=1e-5)


def test_regression(case: EngineCase) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(211, 5)).astype(np.float32)
    y = (x @ rng.normal(size=(5, 2)) + 1).astype(np.float32)
    data = FederatedData(Arrays(x, y), Arrays(x, y), DATA.clients, 2)
    rows = np.arange(211)
    with running(case, lambda: nn.Linear(5, 2), data) as engine:
        start = engine.initial(0)
        (outcome,) = engine.train([task(start, samples=rows, batches=300)])
        before, after = engine.evaluate([Exam(start, rows), Exam(outcome.params, rows)])
        weight, bias = start[:10].view(2, 5).numpy(), start[10:].numpy()
        residual = y - (x @ weight.T + bias)
        assert before.loss == pytest.approx(float((residual**2).mean()), rel=1e-4)
        explained = 1 - (residual**2).mean() / y.var(axis=0).mean()
        assert before.accuracy == pytest.approx(float(explained), rel=1e-3)
        assert after.accuracy > 0.9
