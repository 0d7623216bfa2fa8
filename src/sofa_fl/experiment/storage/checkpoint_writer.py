"""Checkpoints are written aside, one at a time; heavy ones while the next round runs.

What is written is never changed afterwards (a state is made anew every round), so a thread can
write it without a copy; writing and flushing leave Python free to train.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread


class Writer:
    """At most one piece of work under way; its error is raised by the next `start` or `wait`."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._ended = Event()
        self._error: Exception | None = None
        self._then: Callable[[], None] | None = None

    def start(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Begin `work`, once what is under way has ended.

        `then` is called after it has gone well, by whoever waits for it.
        """
        self.wait()
        self._then = then
        self._ended.clear()
        self._thread = Thread(target=self._run, args=(work,), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Return when nothing is under way; raise what went wrong."""
        if self._thread is not None:
            self._ended.wait()  # before Python 3.13 a `join` that Ctrl-C breaks off counts as done
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        then, self._then = self._then, None
        if error is not None:
            raise error
        if then is not None:
            then()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._error = error
        finally:
            self._ended.set()
