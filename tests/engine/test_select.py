"""Which engine runs here."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from torch import nn

from sofa_fl.engine import select
from sofa_fl.engine.select import EngineName, make_engine, pick_engine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.workers import WorkersEngine
from sofa_fl.errors import EngineError
from sofa_fl.models.networks import ModelConfig, NetworkFactory, network_factory
from tests.engine.cases import DATA, LOCAL

FACTORY = network_factory(ModelConfig(name="mlp"), tuple(DATA.train.x.shape[1:]), DATA.num_outputs)


def picked(name: EngineName, factory: NetworkFactory = FACTORY) -> tuple[type, str]:
    pick = pick_engine(name, factory, DATA, LOCAL)
    with closing(pick.engine):
        return type(pick.engine), pick.why


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sequential", SequentialEngine), ("workers", WorkersEngine), ("stacked", StackedEngine)],
)
def test_an_engine_has_its_name(name: EngineName, kind: type) -> None:
    assert picked(name) == (kind, "")


@pytest.mark.parametrize("fastest", [WorkersEngine, SequentialEngine])
def test_the_fastest_is_kept_and_the_others_closed(
    monkeypatch: pytest.MonkeyPatch, fastest: type
) -> None:
    closed: list[type] = []
    monkeypatch.setattr(select, "num_cores", lambda: 2)
    monkeypatch.setattr(select, "_measure", lambda e, _data: 0.25 if type(e) is fastest else 1.5)
    for engine in (WorkersEngine, SequentialEngine):
        monkeypatch.setattr(engine, "close", lambda self: closed.append(type(self)))
    kind, why = picked("auto")
    assert kind is fastest
    assert "0.25 s" in why
    assert "1.5 s" in why
    assert len(closed) == 2  # the slower one when it lost, the other by this test
    assert closed[0] is not fastest


def test_what_is_measured_is_training() -> None:
    with closing(make_engine("sequential", FACTORY, DATA, LOCAL)) as engine:
        assert 0 < select._measure(engine, DATA) < 60


def test_one_core_needs_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "num_cores", lambda: 1)
    assert picked("auto") == (SequentialEngine, "nothing else runs here")


def test_no_workers_where_nothing_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "can_fork", lambda: False)
    assert picked("auto") == (SequentialEngine, "nothing else runs here")


def test_workers_and_cuda_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(EngineError, match="where CUDA is in use; use engine: stacked"):
        picked("workers")


def dropping() -> nn.Module:
    return nn.Sequential(FACTORY(), nn.Dropout(0.5))


def test_what_cannot_be_stacked_says_why() -> None:
    with pytest.raises(EngineError, match="cannot be stacked: '1' draws at random"):
        make_engine("stacked", dropping, DATA, LOCAL)


def test_auto_goes_on_without_what_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "_candidates", lambda _data: ("stacked", "sequential"))
    kind, why = picked("auto", dropping)
    assert kind is SequentialEngine
    assert why.startswith("nothing else runs here; the network cannot be stacked: '1' draws")
    assert "use engine" not in why
