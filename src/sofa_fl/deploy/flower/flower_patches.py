"""Patches of Flower in the calling process: shorter retries, and fixes for two failures.

Flower announces a message before its parts have arrived, and whoever asks for a part too early
waits a second. The patched functions are not Flower's public interface: the extra `flower` pins
its version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.run import RunNotRunningException

FIRST_RETRY = 0.05  # seconds until a part is requested again; each wait is twice the last


def shorten_retries() -> None:
    """Request parts of a message again soon if they have not arrived."""
    for pull in (inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree):
        assert pull.__kwdefaults__ is not None
        pull.__kwdefaults__["initial_backoff"] = FIRST_RETRY


class BrokenMessage:
    """Stands for an answer that Flower cannot put together."""

    def __init__(self) -> None:
        self.metadata = SimpleNamespace(reply_to_message_id="", src_node_id=0)


def survive_broken_answers() -> None:
    """Let a ServerApp survive an answer whose parts are no message.

    Flower raises then, and the answers that arrived together with it are lost.
    """
    from flwr.superlink.grid import http_grid  # a database with it, which machines do not need

    grid: Any = http_grid  # what is patched is not its public interface
    inflate = grid.inflate_object_from_contents
    if getattr(inflate, "is_patched", False):
        return

    @wraps(inflate)
    def safely(*given: Any, **named: Any) -> Any:
        try:
            return inflate(*given, **named)
        except Exception:  # whatever one machine sent
            return BrokenMessage()

    safely.is_patched = True  # type: ignore[attr-defined]
    grid.inflate_object_from_contents = safely


def drop_ended_runs(pull_and_store: Callable[..., int | None]) -> Callable[..., int | None]:
    """Let a SuperNode drop a message whose run ends while the message is on its way.

    Flower ends a run with an exception that its own clean-up does not catch: the task stays, and
    the process that takes it waits two hours for parts that never arrive. A `RuntimeError` is
    caught.
    """

    @wraps(pull_and_store)
    def pull(**given: Any) -> int | None:
        names = ("pull_object", "confirm_message_received")
        return pull_and_store(**{**given, **{name: _caught(given[name]) for name in names}})

    return pull


def _caught(call: Callable[[int, str], Any]) -> Callable[[int, str], Any]:
    @wraps(call)
    def caught(run_id: int, name: str) -> Any:
        try:
            return call(run_id, name)
        except RunNotRunningException as error:
            raise RuntimeError("the run has ended") from error

    return caught
