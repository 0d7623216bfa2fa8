"""What goes wrong in a stack, or while a step is recorded, does not end a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from sofa_fl.engine.base import Exam
from sofa_fl.engine.capture import record_graph
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stack import Stack
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.stepper import Stepper
from sofa_fl.errors import ModelError, release
from tests.engine.cases import DATA, DEVICES, LOCAL, MLP, task
from tests.engine.strangers import Stranger, noises

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def fail(*_args: Any, **_options: Any) -> Any:
    raise RuntimeError("no kernel image\nis available")


@pytest.mark.parametrize("device", DEVICES)
def test_clients_whose_stack_fails_are_trained_one_by_one(
    device: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = SequentialEngine(MLP, DATA, LOCAL, device)
    stacked = StackedEngine(MLP, DATA, LOCAL, device, width=2)
    tasks = [task(plain.initial(i), i, seed=i) for i in range(4)]
    monkeypatch.setattr(Stepper, "step", fail)
    with caplog.at_level(logging.WARNING, "sofa_fl"):
        for _ in range(2):
            for one, same in zip(stacked.train(tasks), plain.train(tasks), strict=True):
                assert torch.equal(one.params, same.params)
    said = "clients are trained one by one, since stacked, torch says 'no kernel image'"
    assert stacked.way == said
    assert caplog.messages == [said]


def test_models_whose_stack_fails_are_scored_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, stacked = (e(MLP, DATA, LOCAL, "cpu") for e in (SequentialEngine, StackedEngine))
    exams = [Exam(plain.initial(i), client.train) for i, client in enumerate(DATA.clients)]
    monkeypatch.setattr(Stack, "forward", fail)
    for _ in range(2):
        for one, same in zip(stacked.evaluate(exams), plain.evaluate(exams), strict=True):
            assert one.loss == pytest.approx(same.loss)
    assert len(caplog.messages) == 1
    assert "models are scored one by one, since stacked, torch says" in caplog.messages[0]


def test_a_fault_of_the_networks_is_raised() -> None:
    class UnluckyError(Exception):
        pass

    def inner(self: Any, h: Tensor) -> Tensor:
        if h.detach().abs().max() > 100:
            raise UnluckyError("too large")
        return h

    stacked = StackedEngine(lambda: Stranger(inner), DATA, LOCAL, "cpu")
    start = stacked.initial(0)
    with pytest.raises(ModelError, match="the network failed in training: UnluckyError: too large"):
        stacked.train([task(start * 1000, batches=1)])
    assert stacked.way.startswith("clients are stacked")
    stacked.train([task(start, batches=1)])


def checkpoint_of_torch_2_12() -> Iterator[None]:
    with saved_tensors_hooks(lambda tensor: tensor, fail):
        yield


def fail_in_a_checkpoint() -> None:
    part = checkpoint_of_torch_2_12()
    next(part)
    fail(part)


def test_an_error_that_was_dealt_with_leaves_no_hooks() -> None:
    kept = []
    try:
        fail_in_a_checkpoint()
    except RuntimeError as error:
        kept.append(ModelError("as it is told"))
        kept[0].__cause__ = error
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no kernel image"):
        x.square().sum().backward()  # type: ignore[no-untyped-call]
    release(kept[0])
    x.square().sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None


def test_the_way_says_that_a_step_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Stepper.__init__

    def made(self: Stepper, *args: Any) -> None:
        init(self, *args)
        self.why_not = "it counts"

    monkeypatch.setattr(Stepper, "__init__", made)
    stacked = StackedEngine(MLP, DATA, LOCAL, "cpu")
    for num in (1, 2):
        stacked.train([task(stacked.initial(i), i, batches=1) for i in range(num)])
    said = "; a step is not recorded as a CUDA graph, since it counts"
    assert stacked.way == f"clients are stacked layer by layer{said}"


@gpu
def test_a_recording_that_fails_leaves_no_traces() -> None:
    x = torch.ones(8, device="cuda")
    stream = torch.cuda.current_stream()
    wrongs: dict[str, Callable[[], object]] = {
        "waits for the GPU": lambda: float(x.sum()),
        "no kernel image": fail,
    }
    for said, wrong in wrongs.items():
        found = record_graph(partial(lambda wrong: (x.add_(1), wrong()), wrong))
        assert isinstance(found, str)
        assert said in found
        assert torch.cuda.current_stream() == stream
        torch.nn.functional.dropout(x, 0.5)  # draws by torch's generator
        torch.cuda.empty_cache()
    graph = record_graph(lambda: x.zero_())
    assert not isinstance(graph, str)
    x.fill_(3)
    graph.replay()
    assert float(x.sum()) == 0


@gpu
def test_what_is_not_recorded_trains_all_the_same() -> None:
    stacked = StackedEngine(lambda: Stranger(noises, always=False), DATA, LOCAL, "cuda")
    stacked.train([task(stacked.initial(i), i, seed=i, batches=2) for i in range(2)])
    assert stacked.way.endswith("CUDA graph, since the network waits for the GPU in it")
