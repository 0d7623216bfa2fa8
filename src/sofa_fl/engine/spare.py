"""What to do while a GPU scores models: Python would only wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class SpareTime:
    """Work that will be needed soon, and that can be done before it is.

    An engine that waits for a GPU does it meanwhile; with any other, nobody does it in advance.
    """

    def __init__(self) -> None:
        self._work: Callable[[], object] | None = None

    @contextmanager
    def offered(self, work: Callable[[], object]) -> Iterator[None]:
        """Let `work` be done here, once at most."""
        self._work = work
        try:
            yield
        finally:
            self._work = None

    def use(self) -> None:
        """Do what is offered."""
        work, self._work = self._work, None
        if work is not None:
            with suppress(Exception):  # whoever needs it will do it again, and see why it fails
                work()
