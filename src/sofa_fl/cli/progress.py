"""Progress on stderr: a live panel on a terminal, a line per round elsewhere, or nothing.

A `Follower` is an observer of a run. It also remembers the run folder, for the message after
Ctrl-C, and shows warnings about other observers.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from rich.console import RenderableType
from rich.control import Control
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.segment import ControlType
from rich.text import Text

from sofa_fl.cli.screen import console
from sofa_fl.errors import printable
from sofa_fl.report.words import duration, news_of

if TYPE_CHECKING:
    from sofa_fl.cli.panel import Panel
    from sofa_fl.experiment.storage.events import Event

MOST_LINES = 22  # of the panel
SCORING = "scoring every level"


def follow(*, quiet: bool, name: str = "") -> Follower:
    """The follower that suits stderr; `name` identifies one of several runs."""
    if quiet:
        return Follower(name)
    screen = console(stderr=True)
    return Bar(name) if screen.is_terminal and not screen.is_dumb_terminal else Lines(name)


class Follower:
    """Shows nothing."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.run: str | None = None
        self.began = time.monotonic()
        self.mark: tuple[int, float] | None = None  # a round, and when it had ended

    def __enter__(self) -> Self:
        self.warnings = _Warnings(self)
        logging.getLogger("sofa_fl").addHandler(self.warnings)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("sofa_fl").removeHandler(self.warnings)

    def warn(self, message: str) -> None:
        print(printable(message), file=sys.stderr, flush=True)

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if event["event"] == "start":
            self.run, self.began = event["run"], now
            if event["round"] is not None:
                self.mark = (event["round"], now)
            self.start(event)
        elif event["event"] == "round":
            self.mark = self.mark or (event["round"], now)
            self.round(event)
        elif event["event"] == "scoring":
            self.scoring(event["done"], event["of"])

    def start(self, event: Event) -> None:
        """The run begins or goes on."""

    def round(self, event: Event) -> None:
        """A round has ended."""

    def scoring(self, done: int, of: int) -> None:
        """All rounds are done, and `done` of `of` steps of the final scoring."""

    def seconds_left(self, round: int, rounds: int) -> float | None:
        """Seconds to the end of the run, if the remaining rounds take as long as those so far."""
        if self.mark is None or round <= self.mark[0]:
            return None
        first, since = self.mark
        return (time.monotonic() - since) / (round - first) * (rounds - round)


class _Warnings(logging.Handler):
    """Shows the warnings of the package by way of a follower."""

    def __init__(self, follower: Follower) -> None:
        super().__init__(logging.WARNING)
        self.follower = follower

    def emit(self, record: logging.LogRecord) -> None:
        self.follower.warn(f"warning: {record.getMessage()}")


class Lines(Follower):
    """A plain line per round."""

    def start(self, event: Event) -> None:
        if why := event["why"]:
            self.say([f"engine {event['engine']} ({why})"])
        if note := event["note"]:
            self.say([note])
        self.say([_begin(event["round"], event["rounds"])])

    def round(self, event: Event) -> None:
        round, rounds = event["round"], event["rounds"]
        left = self.seconds_left(round, rounds)
        parts = [
            f"round {round}/{rounds}" if round else "warm-up done",
            *news_of(event),
            f"{duration(time.monotonic() - self.began)} elapsed",
        ]
        if round < rounds and left is not None:
            parts.append(f"{duration(left)} left")
        self.say(parts)

    def scoring(self, done: int, of: int) -> None:
        if not done:
            self.say([SCORING])

    def say(self, parts: list[str]) -> None:
        print(", ".join([self.name, *parts] if self.name else parts), file=sys.stderr, flush=True)


class Bar(Follower):
    """A bar with a panel of the last rounds below it; both are removed at the end."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.console = console(stderr=True)
        self.display: _Display | None = None
        self.panel: Panel | None = None
        self.last = "all rounds are done"

    def __enter__(self) -> Self:
        super().__enter__()
        # No live display yet: it needs a thread, and engines fork when they are made.
        self.console.print(self.label("preparing data, network and engine"), style="dim", end="")
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self.display is None:
            self.clear_line()
        else:
            self.display.stop()

    def warn(self, message: str) -> None:
        self.console.print(printable(message), style="yellow", soft_wrap=True)

    def start(self, event: Event) -> None:
        self.clear_line()
        if why := event["why"]:
            line = self.label(f"engine {event['engine']} ({why})")
            self.console.print(line, style="dim", highlight=False)
        if note := event["note"]:
            self.console.print(self.label(note), style="yellow", highlight=False, markup=False)
        self.display = _Display(self.console)
        begin = _begin(event["round"], event["rounds"])
        self.display.add_task(self.label(begin), total=None, deadline=None)
        self.display.start()

    def round(self, event: Event) -> None:
        assert self.display is not None
        round, rounds = event["round"], event["rounds"]
        left = self.seconds_left(round, rounds)
        if self.panel is None:
            from sofa_fl.cli.panel import Panel

            self.panel = Panel()
        self.panel.take(event)
        self.last = _done(round, rounds)
        self.display.status = self.panel.draw(min(MOST_LINES, self.console.height - 3))
        self.display.update(
            self.display.task_ids[0],
            description=self.label(self.last),
            completed=round,
            total=rounds,
            deadline=None if left is None or round == rounds else time.monotonic() + left,
        )

    def scoring(self, done: int, of: int) -> None:
        assert self.display is not None
        self.display.update(
            self.display.task_ids[0],
            description=self.label(f"{self.last}, {SCORING}, step {done + 1} of {of}"),
            completed=done,
            total=of,
            deadline=None,
        )

    def label(self, words: str) -> str:
        return f"{self.name}, {words}" if self.name else words

    def clear_line(self) -> None:
        erase = (ControlType.ERASE_IN_LINE, 2)
        self.console.control(Control(ControlType.CARRIAGE_RETURN, erase))


class _Display(Progress):
    """A bar with a line of text under it."""

    status: RenderableType = ""

    def __init__(self, screen: Any) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            _TimeLeft(),
            console=screen,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            expand=True,
            refresh_per_second=4,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield self.status


class _TimeLeft(ProgressColumn):
    """Counts down between rounds."""

    def render(self, task: Task) -> Text:
        deadline = task.fields.get("deadline")
        if deadline is None:
            return Text("")
        return Text(f"{duration(deadline - time.monotonic())} left", style="cyan")


def _begin(last: int | None, rounds: int) -> str:
    if last is None:
        return "warm-up"
    return f"continuing after round {last}/{rounds}" if last < rounds else "all rounds are done"


def _done(round: int, rounds: int) -> str:
    return f"round {round}/{rounds}" if round else "warm-up done"
