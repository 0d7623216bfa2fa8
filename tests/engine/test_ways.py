"""How the stacked engine takes a network: by layers, mapped, or one by one; never refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sofa_fl.engine.base import Exam
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stack import LayerStack
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.errors import EngineError
from sofa_fl.models.networks import NetworkFactory
from tests.engine.cases import (
    DATA,
    ENGINES,
    LOCAL,
    MLP,
    NETWORKS,
    NUM_CLASSES,
    Dropper,
    assert_same,
    task,
)
from tests.engine.test_contract import counting

STACKED = next(case for case in ENGINES if case.name == "stacked")


class Hidden(nn.Module):
    """Does in its `forward` what its modules do not show."""

    last: Tensor

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.layer = what, nn.Linear(64, NUM_CLASSES)
        self.register_buffer("last", torch.zeros(NUM_CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.flatten(1))
        match self.what:
            case "drops":
                return functional.dropout(out, 0.5, self.training)
            case "noise":
                return out + 0.1 * torch.randn_like(out) if self.training else out
            case "skips samples":
                return out * (torch.rand(len(out), 1) < 0.8) if self.training else out
            case "mixes samples":
                return out - out.mean(dim=0)
            case "keeps a mean":
                if self.training:
                    self.last = 0.5 * self.last + out.mean(dim=0).detach()
                return out + self.last
            case "draws its own way":
                own = torch.Generator().manual_seed(3)
                return out + torch.rand(out.shape, generator=own) if self.training else out
            case "asks for a number":
                return out * 2 if float(out.detach().sum()) > 1e9 else out
        raise AssertionError(self.what)


class Tied(nn.Module):
    """Weights that two layers share, and one that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)
        self.two.weight = self.one.weight
        self.unused = nn.Linear(2, 2)
        self.out = nn.Linear(64, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.tanh(self.two(torch.tanh(self.one(x.flatten(1))))))
        return out


def hidden(what: str) -> NetworkFactory:
    return lambda: Hidden(what)


BY_LAYERS, MAPPED, ALONE = "stacked layer by layer", "stacked by torch.func", "trained one by one"
WAYS: dict[str, tuple[NetworkFactory, str]] = {
    "cnn": (NETWORKS["cnn with BatchNorm"], BY_LAYERS),
    "dropout": (Dropper, BY_LAYERS),
    "stride, groups, norms": (NETWORKS["stride, groups, norms"], MAPPED),
    "tied": (Tied, MAPPED),
    "counting": (counting, MAPPED),
    **{
        what: (hidden(what), MAPPED)
        for what in ("drops", "noise", "skips samples", "mixes samples", "keeps a mean")
    },
    "draws its own way": (hidden("draws its own way"), ALONE),
    "asks for a number": (hidden("asks for a number"), ALONE),
}


@pytest.mark.parametrize("name", WAYS)
def test_every_network_trains_as_it_does_alone(name: str) -> None:
    factory, way = WAYS[name]
    plain, engine = (
        SequentialEngine(factory, DATA, LOCAL),
        StackedEngine(factory, DATA, LOCAL, "cpu"),
    )
    assert engine.way.startswith(f"clients are {way}")
    tasks = [task(plain.initial(i), i, seed=i) for i in range(3)]
    expected = plain.train(tasks)
    assert_same(engine.train(tasks), expected, STACKED)
    exams = [Exam(o.params, np.arange(9 * i + 20)) for i, o in enumerate(expected)]
    for score, same in zip(engine.evaluate(exams), plain.evaluate(exams), strict=True):
        assert score.loss == pytest.approx(same.loss, rel=1e-4)


def test_one_by_one_says_why() -> None:
    engine = StackedEngine(hidden("draws its own way"), DATA, LOCAL, "cpu")
    expected = "the network draws random numbers that cannot be drawn per client"
    assert engine.way == f"clients are trained one by one, since {expected}"


def test_a_stack_that_does_something_else_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "sofa_fl.engine.mapping._linear_rule"
    monkeypatch.setattr(wrong, lambda x, weight, bias: x @ weight.transpose(1, 2))
    engine = StackedEngine(Tied, DATA, LOCAL, "cpu")
    expected = "stacked networks give different outputs in training"
    assert engine.way == f"clients are trained one by one, since {expected}"


def test_out_of_memory_less_is_tried_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = StackedEngine(MLP, DATA, LOCAL, "cpu")
    exams = [Exam(engine.initial(i), np.arange(90)) for i in range(4)]
    expected = engine.evaluate(exams)
    plain, sizes = LayerStack._outputs, []

    def limited(self: LayerStack, x: Tensor, training: bool, bf16: bool) -> Tensor:
        sizes.append(len(x))
        if len(x) > limit:
            raise torch.cuda.OutOfMemoryError
        return plain(self, x, training, bf16)

    monkeypatch.setattr(LayerStack, "_outputs", limited)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(engine, "_samples", 400)
    limit = 50  # less than an exam of one client
    for score, same in zip(engine.evaluate(exams), expected):
        assert score.loss == pytest.approx(same.loss, rel=1e-5)
    assert max(sizes) == 360
    limit = 0
    with pytest.raises(EngineError, match="no memory to train a single client"):
        engine.evaluate(exams)
