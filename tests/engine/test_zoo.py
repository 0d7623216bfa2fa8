"""Every network of the zoo trains stacked, and comes out as it does alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sofa_fl.engine.base import Exam, LocalConfig, Task
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.topology.tree import NodeId
from tests.engine.zoo import TINY, ZOO, distance, zoo_data, zoo_tasks

# SGD, since Adam makes a step of full length out of a gradient that is nothing but rounding.
LOCAL = LocalConfig(batches=3, batch_size=6, optimizer="sgd", learning_rate=0.01)
BY_LAYER = {"MLP", "our CNN", "VGG, Dropout"}
TOLERANCE = 2e-3  # of how far a model has moved: a ReLU may flip by rounding
zoo = pytest.mark.parametrize("name", ZOO)


@zoo
def test_stacked_comes_out_as_alone(name: str) -> None:
    animal = ZOO[name]
    data, factory = zoo_data(animal, TINY, num_clients=3, each=12), animal.factory(TINY)
    plain = SequentialEngine(factory, data, LOCAL)
    stacked = StackedEngine(factory, data, LOCAL, "cpu")
    how = "layer by layer" if name in BY_LAYER else "by torch.func"
    assert stacked.way == f"clients are stacked {how}"
    tasks = zoo_tasks(plain, data, LOCAL.batches)
    expected, found = plain.train(tasks), stacked.train(tasks)
    assert distance(found, expected, tasks) <= TOLERANCE
    for one, same in zip(found, expected):
        np.testing.assert_allclose(one.losses, same.losses, rtol=1e-4)
    exams = [Exam(o.params, c.train) for o, c in zip(expected, data.clients)]
    for score, other in zip(stacked.evaluate(exams), plain.evaluate(exams), strict=True):
        assert score.loss == pytest.approx(other.loss, rel=1e-4)
    alone = stacked.train(tasks[1:2])  # whoever is stacked with a client
    assert distance(alone, expected[1:2], tasks[1:2]) <= TOLERANCE


@zoo
def test_in_bf16_stacked_is_as_near_as_bf16_is(name: str) -> None:
    """To what comes out alone; how near that is depends on the network."""
    animal = ZOO[name]
    data, factory = zoo_data(animal, TINY, num_clients=3, each=12), animal.factory(TINY)
    low = replace(LOCAL, precision="bf16")
    plain = SequentialEngine(factory, data, low)
    stacked = StackedEngine(factory, data, low, "cpu")
    tasks = zoo_tasks(plain, data, LOCAL.batches)
    expected = plain.train(tasks)
    rounding = distance(expected, SequentialEngine(factory, data, LOCAL).train(tasks), tasks)
    assert 0 < distance(stacked.train(tasks), expected, tasks) <= 3 * rounding


@pytest.mark.parametrize("name", [name for name, animal in ZOO.items() if animal.draws])
def test_draws_are_the_tasks_own(name: str) -> None:
    animal = ZOO[name]
    data = zoo_data(animal, TINY, num_clients=1, each=6)
    engine = StackedEngine(animal.factory(TINY), data, replace(LOCAL, learning_rate=0.1), "cpu")
    start = engine.initial(0)
    one = np.zeros(6, dtype=np.int64)  # the same sample always: nothing but draws can differ
    tasks = [
        Task(site=NodeId(0), start=start, samples=one, batches=1, seed=seed) for seed in (1, 2, 1)
    ]
    first, other, again = engine.train(tasks)
    assert float((first.params - again.params).norm()) < 1e-6
    assert float((first.params - other.params).norm()) > 1e-4
