"""Progress over many jobs on stderr: one bar on a terminal, a line per job elsewhere, or nothing.

No thread moves the bar: engines fork between jobs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TextColumn

from sofa_fl.cli.screen import console
from sofa_fl.report.words import duration

if TYPE_CHECKING:
    from sofa_fl.experiment.storage.events import Event
    from sofa_fl.jobs.runner import Job

WIDE, TITLE = 120, 52  # columns


def follow_jobs(what: str, jobs: Sequence[Job], *, quiet: bool) -> JobsFollower:
    """The follower that suits stderr; `what` says what the jobs are for."""
    if quiet:
        return JobsFollower(what, jobs)
    screen = console(stderr=True)
    is_moving = screen.is_terminal and not screen.is_dumb_terminal
    return JobsBar(what, jobs) if is_moving else JobsLines(what, jobs)


class JobsFollower:
    """Counts what is done, in rounds, and shows nothing."""

    def __init__(self, what: str, jobs: Sequence[Job]) -> None:
        self.what = what
        self.jobs = list({job.folder: job for job in jobs}.values())  # equal ones run once
        self.steps = [job.config.rounds + 1 for job in self.jobs]
        self.done = [0] * len(self.jobs)
        self.found = 0  # rounds that were there before: they took no time of ours
        self.ended = 0
        self.began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, index: int, event: Event) -> None:
        kind = event["event"]
        if kind == "start" and event["round"] is not None:
            self.found += event["round"] + 1
            self.done[index] = event["round"] + 1
        elif kind == "round":
            self.done[index] = event["round"] + 1
        elif kind == "done":
            if not self.done[index]:
                self.found += self.steps[index]
            self.done[index] = self.steps[index]
            self.ended += 1
        self.show(index, kind)

    def show(self, index: int, kind: str) -> None:
        """Something has happened to a job."""

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        """Seconds to the end of all jobs, if rounds to come take as long as those so far."""
        ours = sum(self.done) - self.found
        return (sum(self.steps) - sum(self.done)) * self.elapsed / ours if ours else None

    @property
    def times(self) -> list[str]:
        left = self.left
        told = [f"{duration(self.elapsed)} elapsed"]
        return told if left is None else [*told, f"{duration(left)} left"]


class JobsLines(JobsFollower):
    """A plain line per job that has ended."""

    def show(self, index: int, kind: str) -> None:
        if kind == "done" and sum(self.done) > self.found:
            parts = [f"{self.what} {self.ended}/{len(self.jobs)}", self.jobs[index].title]
            print(", ".join([*parts, *self.times]), file=sys.stderr, flush=True)


class JobsBar(JobsFollower):
    """One bar over all jobs; it is gone afterwards."""

    def __init__(self, what: str, jobs: Sequence[Job]) -> None:
        super().__init__(what, jobs)
        self.display = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[times]}", markup=False),
            console=console(stderr=True),
            transient=True,
            expand=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.task = self.display.add_task(
            f"{what} 0/{len(self.jobs)}", total=sum(self.steps), times=""
        )

    def __enter__(self) -> Self:
        self.display.start()
        self.display.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def show(self, index: int, kind: str) -> None:
        # Where there is room for it: the bar should not jump about.
        is_wide = self.display.console.width >= WIDE
        now = f", {self.jobs[index].title}".ljust(TITLE) if is_wide else ""
        self.display.update(
            self.task,
            description=f"{self.what} {self.ended}/{len(self.jobs)}{now}",
            completed=sum(self.done),
            times=", ".join(self.times),
            refresh=True,
        )
