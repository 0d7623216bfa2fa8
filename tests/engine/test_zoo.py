"""Every network of the zoo trains stacked, and comes out as it does alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import Exam, LocalConfig, Precision, Task
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.topology.tree import NodeId
from tests.engine.zoo import TINY, ZOO, zoo_data

# By how much models and losses may differ after a few steps, as a fraction. SGD, since Adam makes
# a step of full length out of a gradient that is nothing but rounding.
TOLERANCE: dict[Precision, float] = {"float32": 1e-4, "bf16": 2e-2}
BY_LAYER = {"MLP", "our CNN", "VGG, Dropout"}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", ZOO)
def test_stacked_comes_out_as_alone(name: str, precision: Precision) -> None:
    animal = ZOO[name]
    local = LocalConfig(
        batches=3, batch_size=6, optimizer="sgd", learning_rate=0.05, precision=precision
    )
    data = zoo_data(animal, TINY, num_clients=3, each=12)
    factory = animal.factory(TINY)
    plain = SequentialEngine(factory, data, local)
    stacked = StackedEngine(factory, data, local, "cpu")
    how = "layer by layer" if name in BY_LAYER else "by torch.func"
    assert stacked.way == f"clients are stacked {how}"
    tasks = [
        Task(site=NodeId(i), start=plain.initial(i), samples=c.train, batches=3, seed=i)
        for i, c in enumerate(data.clients)
    ]
    tolerance = TOLERANCE[precision]
    expected = plain.train(tasks)
    for found, same, task in zip(stacked.train(tasks), expected, tasks, strict=True):
        assert isinstance(task.start, torch.Tensor)
        moved = float((same.params - task.start).norm())
        assert moved > 1e-3
        assert float((found.params - same.params).norm()) <= 10 * tolerance * moved
        np.testing.assert_allclose(found.losses, same.losses, rtol=tolerance, atol=tolerance)
    exams = [Exam(o.params, c.train) for o, c in zip(expected, data.clients)]
    for score, other in zip(stacked.evaluate(exams), plain.evaluate(exams), strict=True):
        assert score.loss == pytest.approx(other.loss, rel=1e-4)
    # Whoever is stacked with a client, it comes out the same.
    (apart,) = stacked.train(tasks[1:2])
    torch.testing.assert_close(
        apart.params, stacked.train(tasks)[1].params, rtol=0, atol=max(1e-5, tolerance / 10)
    )


@pytest.mark.parametrize("name", [name for name, animal in ZOO.items() if animal.draws])
def test_draws_are_the_tasks_own(name: str) -> None:
    animal = ZOO[name]
    local = LocalConfig(batches=1, batch_size=6)
    data = zoo_data(animal, TINY, num_clients=1, each=6)
    engine = StackedEngine(animal.factory(TINY), data, local, "cpu")
    start = engine.initial(0)
    one = np.zeros(6, dtype=np.int64)  # the same sample always: nothing but draws can differ
    tasks = [
        Task(site=NodeId(0), start=start, samples=one, batches=1, seed=seed) for seed in (1, 2, 1)
    ]
    first, other, again = engine.train(tasks)
    assert float((first.params - again.params).norm()) < 1e-6
    assert float((first.params - other.params).norm()) > 1e-3
