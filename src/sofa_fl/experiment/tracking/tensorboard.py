"""A run's numbers for TensorBoard: one file in `tensorboard/`, made from `events.jsonl` alone.

A resumed run writes the file again from the start, so no point is in it twice. Records are written
one by one: TensorBoard's own writer would start a thread, and engines fork.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import Tracker

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event as Record

FILE = "events.out.tfevents.{}.sofa-fl"


class TensorBoard(Tracker):
    """Writes `tensorboard/` in the run folder."""

    def begin(self, folder: RunFolder, *, is_new: bool) -> None:
        # Imported here: it takes a fifth of a second, which other commands should not pay.
        from tensorboard.compat.proto import event_pb2

        place = folder.path / "tensorboard"
        place.mkdir(exist_ok=True)
        old = sorted(place.glob(FILE.format("*")))
        # A point's time is the start plus the seconds of work, so a stop leaves no gap.
        self.clock = float(int(time.time()) if is_new or not old else int(old[0].suffixes[-2][1:]))
        for file in old:
            file.unlink()
        self.file = place / FILE.format(int(self.clock))
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
