"""The closed-form engine keeps what of the contract makes sense without a network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import Engine, Exam, Pull, Task
from sofa_fl.models.flat import as_vector
from sofa_fl.topology.tree import NodeId
from tests.engine.cases import distance
from tests.engine.quadratic import quadratic_data

CENTRES = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 0.0], [0.0, 4.0, 2.0]])
DATA, ENGINE = quadratic_data(CENTRES, num_samples=30)


def asked(client: int, start: int = 0, batches: int = 10) -> Task:
    rows = DATA.clients[client].train
    site = NodeId(client)
    return Task(site=site, start=ENGINE.initial(start), samples=rows, batches=batches, seed=0)


def test_is_an_engine_over_data_of_that_shape() -> None:
    engine: Engine = ENGINE
    assert engine.num_trainable == 3
    assert [len(c.train) for c in DATA.clients] == [27, 27, 27]
    assert [len(c.holdout) for c in DATA.clients] == [3, 3, 3]
    for client, centre in zip(DATA.clients, CENTRES):
        np.testing.assert_allclose(DATA.train.x[client.train].mean(axis=0), centre, atol=0.1)


def test_initial_models_depend_on_the_seed_alone() -> None:
    assert torch.equal(ENGINE.initial(3), ENGINE.initial(3))
    assert not torch.equal(ENGINE.initial(3), ENGINE.initial(4))
    assert ENGINE.initial(3).dtype == torch.float32


def test_results_come_in_order_and_depend_on_the_ask_alone() -> None:
    tasks = [asked(client, start=client, batches=client + 1) for client in range(3)]
    together = ENGINE.train(tasks)
    assert [len(outcome.losses) for outcome in together] == [1, 2, 3]
    for outcome, task in zip(ENGINE.train(tasks[::-1])[::-1], tasks, strict=True):
        (alone,) = ENGINE.train([task])
        assert torch.equal(outcome.params, alone.params)


def test_training_ends_at_the_mean_of_the_samples() -> None:
    (outcome,) = ENGINE.train([asked(1, batches=400)])
    mean = DATA.train.x[DATA.clients[1].train].mean(axis=0)
    np.testing.assert_allclose(outcome.params.numpy(), mean, atol=1e-4)
    assert (np.diff(outcome.losses) <= 1e-5).all()


def test_training_ends_at_the_minimum_of_loss_and_pulls() -> None:
    pulls = (Pull(torch.tensor([9.0, 0.0, 0.0]), 0.5), Pull(torch.tensor([0.0, -9.0, 0.0]), 2.0))
    (outcome,) = ENGINE.train([replace(asked(1, batches=600), pulls=pulls)])
    x = outcome.params.clone().requires_grad_()
    points = torch.from_numpy(DATA.train.x[DATA.clients[1].train])
    objective = (points - x).square().sum(dim=1).mean()
    for pull in pulls:
        objective = objective + pull.weight * (x - pull.target).square().sum()
    objective.backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert float(x.grad.norm()) < 1e-3


def test_a_stronger_pull_ends_nearer_to_its_target() -> None:
    target = torch.tensor([9.0, 9.0, 9.0])
    tasks = [replace(asked(0), pulls=(Pull(target, w),)) for w in (0.0, 0.1, 1.0, 10.0)]
    ends = [distance(outcome.params, target) for outcome in ENGINE.train(tasks)]
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] < ends[0] / 2


def test_scores_and_an_empty_exam() -> None:
    model, nothing = torch.zeros(3), np.empty(0, dtype=np.int64)
    near, far, empty = ENGINE.evaluate(
        [Exam(model, DATA.clients[0].test), Exam(model, DATA.clients[1].test), Exam(model, nothing)]
    )
    assert near.loss < far.loss == pytest.approx(16, rel=0.1)
    assert near.accuracy > far.accuracy
    assert (near.num_samples, empty.num_samples) == (30, 0)
    assert np.isnan([empty.loss, empty.accuracy]).all()


def test_a_start_is_left_as_it_is() -> None:
    task = asked(0)
    before = as_vector(task.start).clone()
    ENGINE.train([task])
    assert torch.equal(as_vector(task.start), before)


def test_embeds_a_model_as_itself() -> None:
    models = [ENGINE.initial(i) for i in range(4)]
    places = ENGINE.embed(models, np.arange(5))
    np.testing.assert_array_equal(places, torch.stack(models))
