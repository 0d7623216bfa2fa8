"""Weights & Biases and MLflow by stand-ins with the calls that we make; the real ones are heavy.

Where the real ones are installed, they are tried too, offline and in a file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sofa_fl.api.runs import resume, run
from sofa_fl.experiment.tracking.observers import TrackerName
from tests.experiment.cases import own_data, tiny

Points = dict[str, list[tuple[int, float]]]


class FakeWandb(ModuleType):
    """`wandb.init`, and of the run it gives `log`, `summary`, `finish`, `id`."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.inits: list[dict[str, Any]] = []
        self.points: Points = {}
        self.final: dict[str, Any] = {}
        self.finished = 0

    def init(self, **options: Any) -> SimpleNamespace:
        self.inits.append(options)
        return SimpleNamespace(
            id=options["id"] or f"id{len(self.inits)}",
            log=self.log,
            summary=self.final,
            finish=self.finish,
        )

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self.points.setdefault(name, []).append((step, value))

    def finish(self) -> None:
        self.finished += 1


class FakeMlflow(ModuleType):
    """`MlflowClient` with experiments, runs, batches of metrics and parameters, and histories."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.points: Points = {}
        self.params: dict[str, str] = {}
        self.experiments: list[str] = []
        self.runs: list[str] = []
        self.ended: list[tuple[str, str]] = []
        self.entities = ModuleType("mlflow.entities")
        self.entities.__dict__.update(Metric=self.metric, Param=lambda key, value: (key, value))

    @staticmethod
    def metric(key: str, value: float, timestamp: int, step: int) -> SimpleNamespace:
        return SimpleNamespace(key=key, value=value, timestamp=timestamp, step=step)

    def MlflowClient(self) -> FakeMlflow:  # noqa: N802
        return self

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(experiment_id="7") if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        self.experiments.append(name)
        return "7"

    def create_run(self, experiment_id: str, run_name: str) -> SimpleNamespace:
        assert experiment_id == "7"
        self.runs.append(run_name)
        return SimpleNamespace(info=SimpleNamespace(run_id=f"r{len(self.runs)}"))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        assert run_id == f"r{len(self.runs)}"
        assert len(params) <= 100
        self.params |= dict(params)
        for each in metrics:
            self.points.setdefault(each.key, []).append((each.step, each.value))

    def get_metric_history(self, run_id: str, key: str) -> list[SimpleNamespace]:
        return [self.metric(key, value, 0, step) for step, value in self.points.get(key, [])]

    def set_terminated(self, run_id: str, status: str) -> None:
        self.ended.append((run_id, status))


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setitem(sys.modules, "mlflow.entities", fake.entities)
    return fake


def interrupted(out: Path, *track: TrackerName) -> Path:
    """A run that was stopped after it had told of round 2, whose last checkpoint is of round 1."""

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "end":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tiny(out, track=list(track), rounds=2), data=own_data(), observers=[stop])
    (out / "checkpoints" / "round-00002.safetensors").unlink()
    return out


def test_wandb_is_told_of_every_round(tmp_path: Path, wandb: FakeWandb) -> None:
    result = run(tiny(tmp_path / "run", track=["wandb"]), data=own_data())
    (init,) = wandb.inits
    assert (init["project"], init["name"], init["resume"]) == ("sofa-fl", "run", None)
    assert init["config"]["data"]["num_clients"] == 5
    assert [step for step, _ in wandb.points["accuracy/mean"]] == [0, 1, 2, 3]
    assert wandb.final["final/mean"] == result.summary["client"]["mean"]
    assert wandb.finished == 1


def test_wandb_goes_on_under_the_same_id(tmp_path: Path, wandb: FakeWandb) -> None:
    resume(interrupted(tmp_path / "run", "wandb"), data=own_data())
    first, second = wandb.inits
    assert (first["id"], second["id"], second["resume"]) == (None, "id1", "allow")
    assert json.loads((tmp_path / "run" / "trackers.json").read_text()) == {"wandb": "id1"}


def test_mlflow_is_told_once_of_every_round(tmp_path: Path, mlflow: FakeMlflow) -> None:
    resume(interrupted(tmp_path / "run", "mlflow"), data=own_data())
    assert (mlflow.experiments, mlflow.runs) == (["sofa-fl"], ["run"])
    assert mlflow.params["data.num_clients"] == "5"
    assert [step for step, _ in mlflow.points["accuracy/mean"]] == [0, 1, 2]
    assert [step for step, _ in mlflow.points["final/mean"]] == [2]
    assert mlflow.ended == [("r1", "FINISHED")]


def test_one_that_is_not_there_is_told_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    result = run(tiny(tmp_path / "run", track=["wandb"]), data=own_data())
    assert (result.run / "summary.json").exists()
    (told,) = [record.getMessage() for record in caplog.records if record.name == "sofa_fl"]
    assert told == (
        "Wandb failed: wandb is not installed: pip install 'sofa-fl[trackers]'; "
        "the run continues without it"
    )


@pytest.mark.filterwarnings("default")
def test_the_real_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = run(tiny(tmp_path / "run", track=["wandb"]), data=own_data()).run
    assert list((folder / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.filterwarnings("default")
def test_the_real_mlflow_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    resume(interrupted(tmp_path / "run", "mlflow"), data=own_data())
    name = json.loads((tmp_path / "run" / "trackers.json").read_text())["mlflow"]
    history = real.MlflowClient().get_metric_history(name, "accuracy/mean")
    assert [metric.step for metric in history] == [0, 1, 2]
