"""Progress of a run started from Python: one line on stderr, overwritten every round."""

from __future__ import annotations

import sys
import time

from sofa_fl.experiment.storage.events import Event
from sofa_fl.report.words import duration, news_of


def is_watched() -> bool:
    """Whether somebody is watching, in a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class ProgressLine:
    """An observer that shows the progress of a run, its scores, and the time left."""

    def __init__(self) -> None:
        self._width = 0
        self._title = ""
        self._mark: tuple[int, float] | None = None  # a round, and when it had ended

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if event["event"] == "start":
            self._mark = None if event["round"] is None else (event["round"], now)
            self._title = str(event["run"])
            self._say("warm-up" if event["round"] is None else f"continuing after {event['round']}")
        elif event["event"] == "round":
            self._mark = self._mark or (event["round"], now)
            self._round(event, now)
        elif event["event"] == "scoring":
            done = f"step {event['done'] + 1} of {event['of']}"
            self._say(f"scoring every level, {done}")
        elif event["event"] == "end":
            self._end(event["summary"]["seconds"])

    def _round(self, event: Event, now: float) -> None:
        round, rounds = event["round"], event["rounds"]
        parts = [f"round {round}/{rounds}" if round else "warm-up done", *news_of(event)]
        assert self._mark is not None
        first, since = self._mark
        if first < round < rounds:
            left = (now - since) / (round - first) * (rounds - round)
            parts.append(f"{duration(left)} left")
        self._say(", ".join(parts))

    def _end(self, seconds: float) -> None:
        self._say(f"done in {duration(seconds)}")
        print(file=sys.stderr, flush=True)
        self._width = 0

    def _say(self, words: str) -> None:
        """Overwrite the previous line."""
        line = f"{self._title}: {words}"
        print(f"\r{line:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = len(line)
