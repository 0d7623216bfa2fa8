"""The record of rounds, one after the other: each is described by what was known before it."""

from __future__ import annotations

from collections.abc import Sequence

from sofa_fl.experiment.run.records import describe_round
from sofa_fl.experiment.run.round_end import RoundEnd
from sofa_fl.experiment.scoring.metrics import Examiner
from sofa_fl.experiment.scoring.own_metrics import OwnMetrics, warn_of_missing
from sofa_fl.experiment.storage.events import Event, to_line
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import Observer, notify
from sofa_fl.methods.method import Notes, View


class Recorder:
    """Describes rounds in their order, and remembers the last."""

    def __init__(self, own_metrics: OwnMetrics | None) -> None:
        self.own_metrics = own_metrics
        self.last_event: Event = {}

    def describe(
        self, view: View, notes: Notes, examiner: Examiner, end: RoundEnd
    ) -> tuple[Event, Event]:
        """Score a round; return its line of `events.jsonl` and its event."""
        event = describe_round(view, notes, examiner, self.last_event, end)
        if self.own_metrics is not None and examiner.fed.measured:
            event |= self.own_metrics.measure(view, examiner.fed)
        line, self.last_event = to_line(event, self.last_event), event
        return line, event

    def warn_of_missing(self) -> None:
        """Warn of metrics that the last round had, and that the next one will not have."""
        warn_of_missing(self.last_event, self.own_metrics.metrics if self.own_metrics else ())


def record_round(
    folder: RunFolder, line: Event, event: Event, observers: Sequence[Observer]
) -> None:
    """Record a round that gets no checkpoint, and notify observers."""
    folder.append(line, flush=False)
    notify(observers, event)
