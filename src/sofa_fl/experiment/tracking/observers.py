"""Observers: functions that are called with every event of a run, and that cannot break it.

An observer that fails is reported once, as a warning of the logger `sofa_fl`, and not called
again; the run goes on. Ctrl-C passes through. Trackers are observers that take numbers instead of
events.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sofa_fl.experiment.storage.events import Event, is_evaluated, metric_of, remembered
from sofa_fl.experiment.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event as Record

Observer = Callable[[Event], None]
TrackerName = Literal["wandb", "mlflow"]
logger = logging.getLogger("sofa_fl")

TENSORBOARD_FILE = "events.out.tfevents.{}.sofa-fl"
_SCORES = {"mean": "mean", "worst": "min", "std": "std"}
_RANGE = ("mean", "min", "max")  # of a user's own metrics
_COSTS = {"cost/bytes down": "bytes_down", "cost/bytes up": "bytes_up", "cost/seconds": "seconds"}


def all_observers(track: Sequence[TrackerName], observers: Sequence[Observer]) -> list[Observer]:
    """A caller's observers, TensorBoard if it is installed, and the services to track with."""
    trackers: list[Tracker] = [TensorBoard()] if has_tensorboard() else []
    if track:
        from sofa_fl.experiment.tracking.trackers import SERVICES

        trackers += [SERVICES[name]() for name in dict.fromkeys(track)]
    return guarded([*observers, *trackers])


def guarded(observers: Iterable[Observer]) -> list[Observer]:
    """The same observers, each behind a guard of its own."""
    return [GuardedObserver(observer) for observer in observers]


def at_end(act: Callable[[Path], object]) -> Observer:
    """An observer that acts on the run folder once the run has ended."""

    @wraps(act)
    def observe(event: Event) -> None:
        if event["event"] == "end":
            act(Path(event["summary"]["run"]))

    return observe


def notify(observers: Iterable[Observer], event: Event) -> None:
    """Call every observer with an event."""
    for observer in observers:
        observer(event)


class GuardedObserver:
    """Calls an observer until it fails."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._failed = False

    def __call__(self, event: Event) -> None:
        if self._failed:
            return
        try:
            self._observer(event)
        except Exception as error:
            self._failed = True
            name = getattr(self._observer, "__name__", type(self._observer).__name__)
            why = str(error) or type(error).__name__
            # logging swallows what its handlers raise, even where warnings are errors
            logger.warning(
                "%s failed: %s; the run continues without it", name, " ".join(why.split())
            )
            logger.debug("how it failed", exc_info=True)


@cache
def has_tensorboard() -> bool:
    """Whether TensorBoard is installed; if not, a warning says so once per process."""
    is_installed = find_spec("tensorboard") is not None
    if not is_installed:
        logger.warning("tensorboard is not installed, so the run writes no TensorBoard curves")
    return is_installed


class Tracker(ABC):
    """An observer that is given the numbers of each round instead of events."""

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
        """A run begins or is resumed."""

    @abstractmethod
    def log(self, round: int, values: Mapping[str, float], *, is_past: bool) -> None:
        """The numbers of a round; a resumed run first repeats those of its earlier rounds."""

    @abstractmethod
    def end(self, summary: Mapping[str, Any]) -> None:
        """A run has ended."""


class TensorBoard(Tracker):
    """Writes the numbers into one file in `tensorboard/`, for TensorBoard; from the events alone.

    A resumed run writes the file again from the start, so no point is in it twice. Records are
    written one by one: TensorBoard's own writer would start a thread, and engines fork.
    """

    def begin(self, folder: RunFolder, *, is_new: bool) -> None:
        # Imported here: it takes a fifth of a second, which other commands should not pay.
        from tensorboard.compat.proto import event_pb2

        place = folder.path / "tensorboard"
        place.mkdir(exist_ok=True)
        old = sorted(place.glob(TENSORBOARD_FILE.format("*")))
        # A point's time is the start plus the seconds of work, so a stop leaves no gap.
        self.clock = float(int(time.time()) if is_new or not old else int(old[0].suffixes[-2][1:]))
        for file in old:
            file.unlink()
        self.file = place / TENSORBOARD_FILE.format(int(self.clock))
        _append(self.file, event_pb2.Event(wall_time=self.clock, file_version="brain.Event:2"))

    def log(self, round: int, values: Mapping[str, float], *, is_past: bool) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2

        points = [
            summary_pb2.Summary.Value(tag=name, simple_value=value)
            for name, value in values.items()
        ]
        summary = summary_pb2.Summary(value=points)
        self.clock += values["cost/seconds"]
        _append(self.file, event_pb2.Event(wall_time=self.clock, step=round, summary=summary))

    def end(self, summary: Mapping[str, Any]) -> None:
        """Nothing to add: the last round has been logged."""


def _append(file: Path, record: Record) -> None:
    from tensorboard.summary.writer.record_writer import RecordWriter

    with file.open("ab", buffering=0) as out:
        RecordWriter(out).write(record.SerializeToString())


def scalars(event: Event, before: Event | None = None) -> dict[str, float]:
    """The numbers of a round by name; `before` is the event of the round before, if any.

    `bytes` and `seconds` are the round's own; all others hold after the round.
    """
    client, metric = event["client"], metric_of(event)
    is_new = is_evaluated(event)
    values = {f"{metric}/{name}": client[key] for name, key in _SCORES.items() if is_new}
    if "rmse" in event and is_new:
        values["rmse/mean"] = event["rmse"]
    for name, own in event.get("metrics", {}).items():
        values |= {f"metrics/{name}/{key}": own[key] for key in _RANGE if own[key] is not None}
    if event["local_loss"]:
        values["loss/local"] = float(np.mean(event["local_loss"]))
    if event["path_loss"]:
        best = [min(losses.values()) for losses in event["path_loss"].values() if losses]
        values["loss/held out"] = float(np.mean(best))
    for name, value in event.get("objective", {}).items():
        values[f"objective/{name}"] = value
    values["tree/levels"], values["tree/clusters"] = _size_of(event["tree"])
    kinds = Counter(edit["edit"] for edit in event["edits"])
    values["edits/all"] = kinds.total()
    values |= {f"edits/{kind}": count for kind, count in sorted(kinds.items())}
    for name, key in _COSTS.items():
        values[name] = event[key] - (before[key] if before is not None else 0)
    if event["disclosed"]:
        values["sharing/disclosed"] = _mean(event["disclosed"])
    return {name: float(value) for name, value in values.items()}


@remembered
def _size_of(tree: Mapping[str, int | None]) -> tuple[int, int]:
    """How many levels of clusters a tree has, and how many clusters."""
    clusters = {parent for parent in tree.values() if parent is not None}
    return _depth({cluster: tree[str(cluster)] for cluster in clusters}), len(clusters)


@remembered
def _mean(numbers: list[float]) -> float:
    return float(np.mean(numbers))


def _depth(parents: dict[int, int | None]) -> int:
    """How many nodes the longest path to the root has."""
    depths: dict[int, int] = {}
    for node in parents:
        path: list[int] = []
        up: int | None = node
        while up is not None and up not in depths:
            path.append(up)
            up = parents[up]
        depth = depths[up] if up is not None else 0
        for passed in reversed(path):
            depth += 1
            depths[passed] = depth
    return max(depths.values(), default=0)
