"""Networks of strangers train the same stacked, alone and in any order, or are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sofa_fl.engine.base import Exam
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.errors import ModelError
from tests.engine.cases import DATA, DEVICES, LOCAL, NUM_CLASSES, task
from tests.engine.strangers import ALONE, STRANGERS, Stranger, checked
from tests.engine.zoo import distance

# SGD, since Adam makes a step of full length out of a gradient that is nothing but rounding.
SLOW = replace(LOCAL, batches=3, batch_size=5, optimizer="sgd")
TOLERANCE = 2e-3  # of how far a model has moved


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_trains_stacked_as_alone(name: str, device: str) -> None:
    factory, way = STRANGERS[name]
    plain = SequentialEngine(factory, DATA, SLOW, device)
    stacked = StackedEngine(factory, DATA, SLOW, device)
    assert stacked.way == f"clients are {'' if way.startswith(ALONE) else 'stacked '}{way}"
    tasks = [task(plain.initial(i), i, seed=i, batches=3) for i in range(4)]
    expected = plain.train(tasks)
    backwards = plain.train(tasks[::-1])[::-1]  # nothing goes from one client to the next
    assert distance(backwards, expected, tasks) <= (0 if device == "cpu" else TOLERANCE)
    for _ in range(2):
        assert distance(stacked.train(tasks), expected, tasks) <= TOLERANCE
    exams = [Exam(o.params, c.train) for o, c in zip(expected, DATA.clients)]
    scores = plain.evaluate(exams)
    if device == "cpu":  # a GPU may sum in another order
        assert plain.evaluate(exams[::-1])[::-1] == scores
    for score, other in zip(stacked.evaluate(exams), scores, strict=True):
        assert score.loss == pytest.approx(other.loss, rel=1e-4)


def test_clients_that_go_different_ways_are_trained_one_by_one() -> None:
    """They agree while the way is chosen, and no longer."""

    def large(self: Any, h: Tensor) -> Tensor:
        return h.tanh() if h.detach().abs().max() > 100 else checked(self, h)

    plain = SequentialEngine(lambda: Stranger(large), DATA, SLOW)
    stacked = StackedEngine(lambda: Stranger(large), DATA, SLOW, "cpu")
    assert stacked.way.startswith("clients are stacked by torch.func in training")
    starts = [plain.initial(i) * (1000 if i == 2 else 1) for i in range(4)]
    tasks = [task(start, i, seed=i, batches=3) for i, start in enumerate(starts)]
    for one, same in zip(stacked.train(tasks), plain.train(tasks), strict=True):
        assert torch.equal(one.params, same.params)


class Auxiliary(nn.Linear):
    """Gives a second output in training, as GoogLeNet does."""

    def forward(self, input: Tensor) -> Any:
        out = super().forward(input.flatten(1))
        return (out, out) if self.training else out


class Detached(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(1)).detach()


class Broken(nn.Linear):
    """Fails in training, in a line of its own."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            raise KeyError("mask")
        return super().forward(input.flatten(1))


class Whole(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(1)).argmax(1, keepdim=True).expand(-1, NUM_CLASSES)


class Teacher(nn.Linear):
    """Has a frozen mean of its own weights, which would be all clients' mean."""

    def __init__(self) -> None:
        super().__init__(64, NUM_CLASSES)
        self.mean = nn.Parameter(self.weight.detach().clone(), requires_grad=False)

    def forward(self, input: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.lerp_(self.weight, 0.1)
        return functional.linear(input.flatten(1), self.mean + self.weight)


def in_place() -> nn.Module:
    """As torch refuses it: the output that the ReLU's gradient needs is overwritten."""
    layers = (nn.Linear(64, 8), nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True))
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(8, NUM_CLASSES))


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (
            lambda: Auxiliary(64, NUM_CLASSES),
            "outputs in training as in evaluation, 4 per .* tuple",
        ),
        (lambda: Detached(64, NUM_CLASSES), "must depend on its parameters"),
        (lambda: Broken(64, NUM_CLASSES), r"KeyError: 'mask' \(.*test_strangers.py, line \d+\)$"),
        (lambda: Whole(64, NUM_CLASSES), "return float32 numbers, not a tensor of type int64"),
        (Teacher, "the network changes mean when it is called; make it a buffer"),
        (in_place, "modified by an inplace operation"),
    ],
    ids=["second output", "no gradient", "error", "whole numbers", "teacher", "in place"],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(
    factory: Callable[[], nn.Module], said: str
) -> None:
    def train_alone() -> None:
        engine = SequentialEngine(factory, DATA, SLOW)
        engine.train([task(engine.initial(0), batches=1)])

    for attempt in (train_alone, lambda: StackedEngine(factory, DATA, SLOW, "cpu")):
        with pytest.raises(ModelError, match=said) as refused:
            attempt()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("affine", [True, False], ids=["layer by layer", "mapped"])
def test_batches_of_one_are_refused_for_batchnorm(affine: bool) -> None:
    def factory() -> nn.Module:
        norm = nn.BatchNorm1d(8, affine=affine)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), norm, nn.Linear(8, NUM_CLASSES))

    local = replace(SLOW, batch_size=1)
    for engine in (
        SequentialEngine(factory, DATA, local),
        StackedEngine(factory, DATA, local, "cpu"),
    ):
        with pytest.raises(ModelError, match=r"more than (1|one) value per channel"):
            engine.train([task(engine.initial(0), batches=1)])
