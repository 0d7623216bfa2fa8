"""The services that `track` names, Weights & Biases and MLflow; imported only when asked for."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import Tracker, TrackerName

PROJECT = "sofa-fl"
IDS_FILE = "trackers.json"  # in the run folder: the run's id at each service


class Wandb(Tracker):
    """Weights & Biases; a resumed run keeps its id and its files."""

    def begin(self, folder: RunFolder, *, is_new: bool) -> None:
        wandb = _load("wandb")
        known = None if is_new else _ids(folder).get("wandb")
        self.run = wandb.init(
            project=PROJECT,
            name=folder.path.name,
            dir=str(folder.path),
            id=known,
            resume="allow" if known else None,
            config=folder.config(),
        )
        _keep_id(folder, "wandb", self.run.id)

    def log(self, round: int, values: Mapping[str, float], *, is_past: bool) -> None:
        if not is_past:  # W&B ignores a step that it already has
            self.run.log(dict(values), step=round)

    def end(self, summary: Mapping[str, Any]) -> None:
        self.run.summary.update({f"final/{key}": value for key, value in _final(summary).items()})
        self.run.finish()


class Mlflow(Tracker):
    """MLflow, at the server that its environment variables name; a resumed run keeps its id."""

    def begin(self, folder: RunFolder, *, is_new: bool) -> None:
        mlflow = _load("mlflow")
        self.entities = importlib.import_module("mlflow.entities")
        self.client = mlflow.MlflowClient()
        self.last = -1
        known = None if is_new else _ids(folder).get("mlflow")
        if known is not None:
            self.id = known
            # With save_every above 1, rounds that were logged may be run again.
            history = self.client.get_metric_history(known, "cost/seconds")
            self.last = max((metric.step for metric in history), default=-1)
            return
        found = self.client.get_experiment_by_name(PROJECT)
        where = found.experiment_id if found else self.client.create_experiment(PROJECT)
        self.id = self.client.create_run(where, run_name=folder.path.name).info.run_id
        _keep_id(folder, "mlflow", self.id)
        given = [self.entities.Param(key, str(value)) for key, value in _flat(folder.config())]
        for start in range(0, len(given), 100):  # the most it takes at a time
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


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise RunError(f"{name} is not installed: pip install 'sofa-fl[trackers]'") from None


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _final(summary: Mapping[str, Any]) -> dict[str, float]:
    client = summary["client"]
    values = {"mean": client["mean"], "worst": client["min"], "full": summary["full"]}
    return {name: value for name, value in values.items() if value is not None}


def _ids(folder: RunFolder) -> dict[str, str]:
    file = folder.path / IDS_FILE
    ids: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return ids


def _keep_id(folder: RunFolder, service: str, run_id: str) -> None:
    write_text(folder.path / IDS_FILE, json.dumps({**_ids(folder), service: run_id}) + "\n")


SERVICES: Mapping[TrackerName, type[Tracker]] = {"wandb": Wandb, "mlflow": Mlflow}
