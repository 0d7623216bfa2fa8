"""Trackers that people have: observers that hand a run's numbers on, round by round.

Where TensorBoard is installed it is always written, into the run folder. Weights & Biases and
MLflow come with `track` and are imported when they are asked for; what of theirs fails is told
once, and the run goes on.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import yaml

from sofa_fl.errors import RunError
from sofa_fl.experiment.run.observers import Observer, guarded, logger
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.run_folder import Event, RunFolder
from sofa_fl.experiment.tracking.scalars import scalars

TrackerName = Literal["wandb", "mlflow"]
PROJECT = "sofa-fl"
NOTED = "trackers.json"  # in the run folder: by which names others know it


def watched(track: Sequence[TrackerName], observers: Sequence[Observer]) -> Sequence[Observer]:
    """TensorBoard, the trackers asked for, and a caller's own observers; none can break a run."""
    from sofa_fl.experiment.tracking.tensorboard import TensorBoard

    kinds = {"wandb": Wandb, "mlflow": Mlflow}
    always = [TensorBoard()] if has_tensorboard() else []
    return guarded([*observers, *always, *(kinds[name]() for name in dict.fromkeys(track))])


@cache
def has_tensorboard() -> bool:
    """Whether it is installed; if not, that is told once, however many runs there are."""
    is_there = find_spec("tensorboard") is not None
    if not is_there:
        logger.warning("tensorboard is not installed, so runs have no curves for it")
    return is_there


class Tracker(ABC):
    """An observer that is given numbers instead of events."""

    def __init__(self) -> None:
        self._before: Event | None = None

    def __call__(self, event: Event) -> None:
        if event["event"] == "start":
            folder = RunFolder(Path(event["run"]))
            self.begin(folder, is_new=event["round"] is None)
            for past in folder.events():  # of a run that is resumed
                self._take(past, is_past=True)
        elif event["event"] == "round":
            self._take(event, is_past=False)
        elif event["event"] == "end":
            self.end(event["summary"])

    def _take(self, event: Event, *, is_past: bool) -> None:
        values = scalars(event, self._before)
        self._before = event
        self.log(event["round"], values, is_past=is_past)

    @abstractmethod
    def begin(self, folder: RunFolder, *, is_new: bool) -> None:
        """A run begins or goes on."""

    @abstractmethod
    def log(self, round: int, values: Mapping[str, float], *, is_past: bool) -> None:
        """The numbers of a round; of a resumed run, first those of the rounds it had before."""

    @abstractmethod
    def end(self, summary: Mapping[str, Any]) -> None:
        """A run has ended."""


class Wandb(Tracker):
    """Weights & Biases; a resumed run goes on under the same id, in its own files."""

    def begin(self, folder: RunFolder, *, is_new: bool) -> None:
        wandb = _load("wandb", "wandb")
        known = None if is_new else _noted(folder).get("wandb")
        self.run = wandb.init(
            project=PROJECT,
            name=folder.path.name,
            dir=str(folder.path),
            id=known,
            resume="allow" if known else None,
            config=_config(folder),
        )
        _note(folder, "wandb", self.run.id)

    def log(self, round: int, values: Mapping[str, float], *, is_past: bool) -> None:
        if not is_past:  # a step that it has already is passed over by W&B
            self.run.log(dict(values), step=round)

    def end(self, summary: Mapping[str, Any]) -> None:
        self.run.summary.update({f"final/{key}": value for key, value in _final(summary).items()})
        self.run.finish()


class Mlflow(Tracker):
    """MLflow, where its own environment variables say; a resumed run goes on in the same one."""

    def begin(self, folder: RunFolder, *, is_new: bool) -> None:
        mlflow = _load("mlflow", "mlflow-skinny")
        self.entities = importlib.import_module("mlflow.entities")
        self.client = mlflow.MlflowClient()
        self.last = -1
        known = None if is_new else _noted(folder).get("mlflow")
        if known is not None:
            self.id = known
            # With save_every above 1, rounds that were told may be run again.
            history = self.client.get_metric_history(known, "cost/seconds")
            self.last = max((metric.step for metric in history), default=-1)
            return
        found = self.client.get_experiment_by_name(PROJECT)
        where = found.experiment_id if found else self.client.create_experiment(PROJECT)
        self.id = self.client.create_run(where, run_name=folder.path.name).info.run_id
        _note(folder, "mlflow", self.id)
        given = [self.entities.Param(key, str(value)) for key, value in _flat(_config(folder))]
        for start in range(0, len(given), 100):  # it takes no more at a time
            self.client.log_batch(self.id, params=given[start : start + 100])

    def log(self, round: int, values: Mapping[str, float], *, is_past: bool) -> None:
        if not is_past and round > self.last:
            self._put(values, round)

    def end(self, summary: Mapping[str, Any]) -> None:
        values = {f"final/{key}": value for key, value in _final(summary).items()}
        self._put(values, summary["rounds"])
        self.client.set_terminated(self.id, "FINISHED")

    def _put(self, values: Mapping[str, float], round: int) -> None:
        from time import time

        now = int(1000 * time())
        metrics = [self.entities.Metric(key, value, now, round) for key, value in values.items()]
        self.client.log_batch(self.id, metrics=metrics)


def _load(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise RunError(f"{name} is not installed: pip install {package}") from None


def _config(folder: RunFolder) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(folder.config_file.read_text(encoding="utf-8"))
    return config


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _final(summary: Mapping[str, Any]) -> dict[str, float]:
    client = summary["client"]
    return {"mean": client["mean"], "worst": client["min"], "full": summary["full"]}


def _noted(folder: RunFolder) -> dict[str, str]:
    file = folder.path / NOTED
    noted: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return noted


def _note(folder: RunFolder, tracker: str, name: str) -> None:
    write_text(folder.path / NOTED, json.dumps({**_noted(folder), tracker: name}) + "\n")
