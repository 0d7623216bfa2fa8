"""Which engine runs here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
import torch

from sofa_fl.data.federated_data import FederatedData
from sofa_fl.engine import select
from sofa_fl.engine.base import SureEngine
from sofa_fl.engine.config import EngineName
from sofa_fl.engine.select import make_engine, pick_engine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.workers import WorkersEngine
from sofa_fl.errors import EngineError, ModelError
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import NetworkFactory, network_factory
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
    way = "clients are stacked layer by layer" if name == "stacked" else ""
    assert picked(name) == (kind, way)


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
    assert picked("auto") == (SequentialEngine, "no other engine runs here")


def test_no_workers_where_nothing_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "can_fork", lambda: False)
    assert picked("auto") == (SequentialEngine, "no other engine runs here")


def test_workers_and_cuda_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(EngineError, match="while CUDA is in use; use engine: stacked"):
        picked("workers")


def on_gpu(monkeypatch: pytest.MonkeyPatch, failing: dict[str, str]) -> list[str]:
    """A GPU, as far as the choice goes, on which these engines fail; which of them are tried."""
    tried: list[str] = []

    def failures(make: Callable[[FederatedData], SureEngine], *_rest: object) -> str | None:
        kind = "stacked" if isinstance(make(DATA), StackedEngine) else "sequential"
        tried.append(kind)
        return failing.get(kind)

    monkeypatch.setattr(select, "has_gpu", lambda: True)
    monkeypatch.setattr(select, "_candidates", lambda _data: ("stacked", "sequential"))
    monkeypatch.setattr(select, "failure_on_gpu", failures)
    return tried


def test_auto_says_how_clients_are_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "_measure", lambda e, _data: 2 - isinstance(e, StackedEngine))
    assert on_gpu(monkeypatch, {}) == []
    kind, why = picked("auto")
    assert kind is StackedEngine
    assert why == "measured: stacked 1 s, sequential 2 s; clients are stacked layer by layer"


def test_auto_goes_on_without_what_fails_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = on_gpu(monkeypatch, {"stacked": "its process died (exit code -6)"})
    sentence = "stacked fails on the GPU: its process died (exit code -6)"
    assert picked("auto") == (SequentialEngine, f"no other engine runs here; {sentence}")
    assert tried == ["stacked", "sequential"]


def test_auto_goes_to_the_cpu_if_all_fail_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu(monkeypatch, {"stacked": "A", "sequential": "B"})
    sentences = "stacked fails on the GPU: A; sequential fails on the GPU: B"
    assert picked("auto") == (SequentialEngine, f"on the CPU; {sentences}")


def test_auto_goes_to_the_cpu_if_nothing_could_be_tried_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a process that has used CUDA, no other can be forked that does."""

    def refuse(*_args: object) -> SureEngine:
        raise ModelError("two devices (net.py, line 7)")

    on_gpu(monkeypatch, {})
    monkeypatch.setattr(select, "_failures", lambda *_: {})
    monkeypatch.setattr(select, "make_engine", refuse)
    sentences = "; ".join(
        f"{name} fails on the GPU: two devices (net.py, line 7)"
        for name in ("stacked", "sequential")
    )
    assert picked("auto") == (SequentialEngine, f"on the CPU; {sentences}")
    monkeypatch.setattr(select, "has_gpu", lambda: False)
    with pytest.raises(ModelError, match="two devices"):
        picked("auto")


@pytest.mark.parametrize(("workers", "kind"), [(1.2, WorkersEngine), (1.5, SequentialEngine)])
def test_workers_are_kept_unless_they_are_clearly_slower(
    monkeypatch: pytest.MonkeyPatch, workers: float, kind: type
) -> None:
    """On a machine that others use now, they may be slower for a moment."""
    monkeypatch.setattr(select, "num_cores", lambda: 2)
    measured = {WorkersEngine: workers, SequentialEngine: 1.0}
    monkeypatch.setattr(select, "_measure", lambda engine, _data: measured[type(engine)])
    assert picked("auto")[0] is kind


def test_the_shortest_of_several_measurements_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 90.0, 100.0, 109.0, 200.0, 202.0, 300.0, 305.0])
    monkeypatch.setattr("sofa_fl.engine.select.time.perf_counter", lambda: next(ticks))
    with closing(make_engine("sequential", FACTORY, DATA, LOCAL)) as engine:
        assert select._measure(engine, DATA) == 2.0
