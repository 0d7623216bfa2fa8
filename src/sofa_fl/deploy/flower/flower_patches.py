"""Shorter pauses for Flower, and one of its failures mended; for the process that calls it.

A message is announced before its parts are there, and who asks for a part too early waits a second
in Flower. None of it is Flower's public interface: the extra `flower` says of which version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.run import RunNotRunningException

ASK_AGAIN = 0.05  # seconds until a part is asked for a second time; each wait is twice the last


def hasten() -> None:
    """Ask again soon for parts of a message that are still under way."""
    for pull in (inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree):
        assert pull.__kwdefaults__ is not None
        pull.__kwdefaults__["initial_backoff"] = ASK_AGAIN


def tidy(pull_and_store: Callable[..., int | None]) -> Callable[..., int | None]:
    """Let a node forget a message whose run ends while the message is on its way.

    Flower ends a run by an exception that its own clean-up does not catch: the task stays, and who
    takes it waits two hours for parts that will never come. As a common error it is cleaned up.
    """

    @wraps(pull_and_store)
    def pull(**given: Any) -> int | None:
        names = ("pull_object", "confirm_message_received")
        return pull_and_store(**{**given, **{name: _failing(given[name]) for name in names}})

    return pull


def _failing(call: Callable[[int, str], Any]) -> Callable[[int, str], Any]:
    @wraps(call)
    def failing(run_id: int, name: str) -> Any:
        try:
            return call(run_id, name)
        except RunNotRunningException as error:
            raise RuntimeError("the run has ended") from error

    return failing
