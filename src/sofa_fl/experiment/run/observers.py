"""Observers are told what happens in a run, and cannot break it.

One that fails is reported once, as a warning of the logger `sofa_fl`, and not called again; the
run goes on. Ctrl-C passes through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from sofa_fl.experiment.storage.run_folder import Event

Observer = Callable[[Event], None]
logger = logging.getLogger("sofa_fl")


def guarded(observers: Iterable[Observer]) -> Sequence[Observer]:
    """The same observers, each behind a guard of its own."""
    return [Guard(observer) for observer in observers]


def tell(observers: Iterable[Observer], event: Event) -> None:
    for observer in observers:
        observer(event)


class Guard:
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
            # logging swallows what its handlers raise, also where warnings are errors
            logger.warning("%s failed: %s; the run goes on without it", name, " ".join(why.split()))
            logger.debug("how it failed", exc_info=True)
