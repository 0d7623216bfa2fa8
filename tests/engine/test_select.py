"""Which engine runs here."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from torch import nn

from sofa_fl.engine import select
from sofa_fl.engine.select import EngineName, make_engine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.workers import WorkersEngine
from sofa_fl.errors import EngineError
from sofa_fl.models.networks import ModelConfig, network_factory
from tests.engine.cases import DATA, LOCAL

FACTORY = network_factory(ModelConfig(name="mlp"), tuple(DATA.train.x.shape[1:]), DATA.num_outputs)


def made(name: EngineName) -> type:
    with closing(make_engine(name, FACTORY, DATA, LOCAL)) as engine:
        return type(engine)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sequential", SequentialEngine), ("workers", WorkersEngine), ("stacked", StackedEngine)],
)
def test_an_engine_has_its_name(name: EngineName, kind: type) -> None:
    assert made(name) is kind


def test_several_cores_get_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "num_cores", lambda: 2)
    assert made("auto") is WorkersEngine


def test_one_core_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "num_cores", lambda: 1)
    assert made("auto") is SequentialEngine


def test_no_workers_where_nothing_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "can_fork", lambda: False)
    assert made("auto") is SequentialEngine


def test_workers_and_cuda_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(EngineError, match="where CUDA is in use; use engine: stacked"):
        made("workers")


def test_what_cannot_be_stacked_says_why() -> None:
    def factory() -> nn.Module:
        return nn.Sequential(FACTORY(), nn.Dropout(0.5))

    with pytest.raises(EngineError, match="cannot be stacked: '1' draws at random"):
        make_engine("stacked", factory, DATA, LOCAL)
