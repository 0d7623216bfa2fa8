"""A trial in a process of its own: what it says, and that this process survives it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sofa_fl.data.federated_data import FederatedData
from sofa_fl.engine import trial
from sofa_fl.engine.base import SureEngine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.trial import failure_apart, failure_on_gpu, few, has_gpu, train_few
from sofa_fl.engine.workers import can_fork
from tests.engine.cases import DATA, LOCAL, MLP

forks = pytest.mark.skipif(not can_fork(), reason="processes are forked on Linux only")


def raise_error() -> None:
    raise RuntimeError("CUDA error: misaligned address\nand a lot more")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@forks
def test_what_works_has_no_failure() -> None:
    assert failure_apart(lambda: train_few(SequentialEngine(MLP, DATA, LOCAL), DATA)) is None


@forks
def test_a_failure_is_one_sentence() -> None:
    assert failure_apart(raise_error) == "RuntimeError: CUDA error: misaligned address"
    assert failure_apart(die) == "its process died (exit code -9)"
    assert failure_apart(lambda: time.sleep(60), seconds=0.2) == "it did not finish within 0.2 s"


@forks
def test_what_happens_in_a_trial_stays_there() -> None:
    seen: list[int] = []
    assert failure_apart(lambda: seen.append(1)) is None
    assert not seen


def test_few_samples_do() -> None:
    some = few(DATA, LOCAL)
    assert [len(client.train) for client in some.clients] == [16, 16]
    assert (len(some.train), some.num_outputs) == (32, DATA.num_outputs)
    alone = FederatedData(
        DATA.train.take(np.arange(1)),
        DATA.test,
        (replace(DATA.clients[0], train=np.arange(1), holdout=np.arange(0)),),
        DATA.num_outputs,
    )
    assert [len(client.train) for client in few(alone, LOCAL).clients] == [1]


def refuse(_data: FederatedData) -> SureEngine:
    raise AssertionError("nothing is to be tried")


def own_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


@forks
def test_what_is_tried_is_a_users_network(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = torch.zeros

    def without_gpu(*size: int, device: str = "cpu") -> torch.Tensor:
        return zeros(*size)

    monkeypatch.setattr(torch, "zeros", without_gpu)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert failure_on_gpu(refuse, MLP, DATA, LOCAL) is None, "the package's own is known to work"
    said = failure_on_gpu(refuse, own_network, DATA, LOCAL)
    assert said == "AssertionError: nothing is to be tried"


def test_nothing_is_tried_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        assert failure_on_gpu(refuse, own_network, DATA, LOCAL) is None
    monkeypatch.setattr(trial, "can_fork", lambda: False)
    assert failure_on_gpu(refuse, own_network, DATA, LOCAL) is None


def test_asking_for_a_gpu_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def available() -> bool:
        seen.append(os.environ.get(trial.ASK_NVML))
        return False

    monkeypatch.setattr(torch.cuda, "is_available", available)
    monkeypatch.delenv(trial.ASK_NVML, raising=False)
    assert not has_gpu()
    assert (seen, os.environ.get(trial.ASK_NVML)) == (["1"], None)
