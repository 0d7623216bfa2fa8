"""Progress on stderr: lines, below them on a terminal one bar over all runs; or nothing.

Runs one by one have a line per round, runs side by side a line each when they end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from sofa_fl.cli.screen import console
from sofa_fl.errors import printable
from sofa_fl.experiment.storage.events import edit_from_json, metric_of
from sofa_fl.report.words import duration, news_of, said_score

if TYPE_CHECKING:
    from sofa_fl.experiment.storage.events import Event
    from sofa_fl.jobs.runner import Job

NUM_EDITS = 4  # that are told of a round
PREPARING = "preparing data, network and engine"
SCORING = "scoring every level"


def follow(*, quiet: bool) -> Follower:
    """A follower of one run, which says how many rounds it has when it starts."""
    return Follower([""], [0], quiet=quiet)


def follow_jobs(what: str, jobs: Sequence[Job], *, quiet: bool) -> Follower:
    """A follower of several runs; `what` they are for, or empty for a line per round."""
    unique = {job.folder: job for job in jobs}.values()  # equal ones run once
    rounds = [job.config.rounds for job in unique]
    return Follower([job.title for job in unique], rounds, what, quiet=quiet)


class Follower:
    """An observer of runs, which counts their rounds and shows how far they are.

    It also remembers the folder of the last run and shows warnings of the package. A thread moves
    the bar while a run trains, and never while an engine is made, because engines fork.
    """

    def __init__(
        self, names: Sequence[str], rounds: Sequence[int], what: str = "", *, quiet: bool = False
    ) -> None:
        self.names = names
        self.what = what
        self.quiet = quiet
        self.run: str | None = None
        self.rounds = list(rounds)
        self.done = [0] * len(names)  # steps: the warm-up and the rounds
        self.found = 0  # of these, those that took no time of ours
        self.ended = 0
        self.running: set[int] = set()
        self.began = time.monotonic()
        self.mark: tuple[int, float] | None = None  # after how many steps of ours, and when
        self.deadline: float | None = None
        self.last: Event | None = None  # of the round before
        self.console = console(stderr=True)
        self.has_bar = self.console.is_terminal and not self.console.is_dumb_terminal and not quiet
        self.bar = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None),
            _Times(self),
            console=self.console,
            transient=True,
            expand=True,
            disable=not self.has_bar,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.task = self.bar.add_task(PREPARING, total=None)

    def __enter__(self) -> Self:
        self.warnings = _Warnings(self)
        logging.getLogger("sofa_fl").addHandler(self.warnings)
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        logging.getLogger("sofa_fl").removeHandler(self.warnings)

    def __call__(self, event: Event, index: int = 0) -> None:
        kind = event["event"]
        if kind == "start":
            self._start(event, index)
        elif kind == "round":
            self._step(event["round"] + 1, index)
            self._round(event, index)
        elif kind == "scoring":
            self._scoring(event, index)
        elif kind == "done":
            self._done(event, index)

    def of_many(self, index: int, event: Event) -> None:
        """The same, for `run_jobs`."""
        self(event, index)

    def warn(self, message: str) -> None:
        self.console.print(Text(printable(message), style="yellow"), soft_wrap=True)

    def line(self, index: int, parts: Sequence[str], style: str = "") -> None:
        """Say something about a run, unless every run has only a line when it ends."""
        if not self.what:
            self.say(self.named(index, *parts), style)

    def now(self, index: int, words: str) -> None:
        """Say what a run is doing, unless the bar does."""
        if not self.has_bar:
            self.line(index, [words])

    def say(self, text: str, style: str = "") -> None:
        if not self.quiet:
            self.console.print(Text(printable(text), style=style), soft_wrap=True)

    def named(self, index: int, *parts: str) -> str:
        return ", ".join([self.names[index], *parts] if self.names[index] else parts)

    def times(self) -> list[str]:
        now = time.monotonic()
        told = [f"{duration(now - self.began)} elapsed"]
        if self.deadline is not None and self.deadline > now:
            told.append(f"{duration(self.deadline - now)} left")
        return told

    def _start(self, event: Event, index: int) -> None:
        before, self.last = event["round"], None
        if "run" in event:  # unless the run is of another process
            self.run, self.rounds[index] = event["run"], event["rounds"]
            if len(self.names) == 1:
                self.began = time.monotonic()
            if event["why"]:
                self.line(index, [f"engine {event['engine']} ({event['why']})"], "dim")
            if event["note"]:
                self.line(index, [event["note"]], "yellow")
            self.now(index, _begin(before, event["rounds"]))
        if before is not None:
            self.found += before + 1
            self.mark = self.mark or (sum(self.done) + before + 1 - self.found, time.monotonic())
            self._step(before + 1, index)
        self._tick(index, is_running=True)
        self._show(self.named(index, _begin(before, self.rounds[index])))

    def _round(self, event: Event, index: int) -> None:
        if self.what:
            self._show("")
            return
        now = f"round {event['round']}/{event['rounds']}" if event["round"] else "warm-up done"
        times = [] if self.has_bar else self.times()
        self.line(index, [now, *news_of(event), *times])
        if self.has_bar:
            self._tell_edits(event)
        self._show(self.named(index, now))

    def _scoring(self, event: Event, index: int) -> None:
        if not self.what:
            self._show(self.named(index, f"{SCORING}, step {event['done'] + 1} of {event['of']}"))
            if not event["done"]:
                self.now(index, SCORING)

    def _done(self, event: Event, index: int) -> None:
        if not self.done[index]:
            self.found += self.rounds[index] + 1
        self._step(self.rounds[index] + 1, index)
        self._tick(index, is_running=False)
        self.ended += 1
        if self.what and sum(self.done) > self.found:
            client, metric = event["summary"]["client"], metric_of(event["summary"])
            scores = [f"{n} {said_score(client[k], metric)}" for n, k in WORDS.items()]
            parts = [self.count, self.names[index], *scores, *self.times()]
            self.say(", ".join(parts))
        self._show(PREPARING)

    @property
    def count(self) -> str:
        return f"{self.what} {self.ended}/{len(self.names)}"

    def _step(self, done: int, index: int) -> None:
        """A run has done so many of its steps; those to come take as long as those so far."""
        now, self.done[index] = time.monotonic(), done
        ours = sum(self.done) - self.found
        left = sum(self.rounds) + len(self.rounds) - sum(self.done)
        if ours and self.mark is None:
            self.mark = ours, now
        self.deadline = None
        if self.mark is not None and ours > self.mark[0] and left > 0:
            self.deadline = now + (now - self.mark[1]) / (ours - self.mark[0]) * left

    def _show(self, words: str) -> None:
        """Update the bar."""
        total = sum(self.rounds) + len(self.rounds)
        words = self.count if self.what else words
        done = sum(self.done)
        self.bar.update(self.task, description=printable(words), completed=done, total=total)
        self.bar.refresh()

    def _tick(self, index: int, *, is_running: bool) -> None:
        """Let a thread move the bar while anything runs."""
        (self.running.add if is_running else self.running.discard)(index)
        if self.has_bar and self.bar.live.auto_refresh != bool(self.running):
            self.bar.stop()
            self.bar.live.auto_refresh = bool(self.running)
            self.bar.start()

    def _tell_edits(self, event: Event) -> None:
        """Tell the edits of a round in words."""
        from sofa_fl.report.history import tell_edits

        before, self.last = self.last, event
        told = tell_edits([edit_from_json(edit) for edit in event["edits"]], before, event)
        for sentence in told[:NUM_EDITS]:
            self.say(f"  {sentence}", "dim")
        if len(told) > NUM_EDITS:
            self.say(f"  and {len(told) - NUM_EDITS} more", "dim")


WORDS = {"mean": "mean", "worst": "min"}


class _Times(ProgressColumn):
    """Counts on between rounds."""

    def __init__(self, follower: Follower) -> None:
        super().__init__(Column(no_wrap=True))
        self.follower = follower

    def render(self, task: Task) -> Text:
        return Text(", ".join(self.follower.times()), style="cyan")


class _Warnings(logging.Handler):
    """Shows the warnings of the package by way of a follower."""

    def __init__(self, follower: Follower) -> None:
        super().__init__(logging.WARNING)
        self.follower = follower

    def emit(self, record: logging.LogRecord) -> None:
        self.follower.warn(f"warning: {record.getMessage()}")


def _begin(last: int | None, rounds: int) -> str:
    if last is None:
        return "warm-up"
    return f"continuing after round {last}/{rounds}" if last < rounds else "all rounds are done"
