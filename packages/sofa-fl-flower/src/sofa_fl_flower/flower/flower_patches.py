"""Patches of Flower in the calling process: shorter retries, and fixes for failures.

Flower announces a message before its parts have arrived, and whoever asks for a part too early
waits a second. The patched functions are not Flower's public interface: the extra `flower` pins
its version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import httpx
from flwr.supercore.heartbeat import HeartbeatFailure, HeartbeatSender
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.retry import RetryInvoker, make_simple_http_retry_invoker
from flwr.supercore.run import RunNotRunningException

FIRST_RETRY = 0.05  # seconds until a part is requested again; each wait is twice the last


def shorten_retries() -> None:
    """Request parts of a message again soon if they have not arrived."""
    for pull in (inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree):
        assert pull.__kwdefaults__ is not None
        pull.__kwdefaults__["initial_backoff"] = FIRST_RETRY


def limit_waits(seconds: float) -> None:
    """Wait no longer than that for the parts of a message.

    Flower waits up to two hours. A node whose server announces a message and then fails to send it
    would answer nothing else meanwhile.
    """
    defaults = inflatable_utils.pull_objects.__kwdefaults__
    assert defaults is not None
    defaults["max_time"] = seconds


def local_retries() -> RetryInvoker:
    """How the ClientApp's process asks its SuperNode again: a few times, and not if it is refused.

    A task that the SuperNode has given up is refused. Flower's process ends itself then, with a
    signal; this one has other messages to answer.
    """
    retries = make_simple_http_retry_invoker()
    retries.max_tries = 3
    give_up = retries.should_giveup
    assert give_up is not None

    def is_final(error: Exception) -> bool:
        status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
        return status == httpx.codes.UNAUTHORIZED or give_up(error)

    retries.should_giveup = is_final
    return retries


class SteadyHeart(HeartbeatSender):
    """Goes on after any failure; Flower's stops for ever if the server fails once in its own way.

    A machine without it is taken for gone after a minute, and gets no more work.
    """

    def _heartbeat(self) -> None:
        try:
            super()._heartbeat()
        except Exception as error:
            raise HeartbeatFailure from error


def send_late_replies(pull_and_store: Callable[..., int | None]) -> Callable[..., int | None]:
    """Let a SuperNode send every reply that is ready before it asks for the next message.

    Flower looks for a reply only after it got a message, and takes any. If a server dies after it
    gave out a message, the reply to that one is left over; it goes out in place of the next, which
    then waits for a message that a server sends only when it has the reply.
    """

    @wraps(pull_and_store)
    def pull(**given: Any) -> int | None:
        state = given["state"]
        with state.lock_msg_store:
            ready = [
                entry.message.metadata.run_id
                for entry in state.msg_store.values()
                if entry.message.metadata.reply_to_message_id and not entry.is_retrieved
            ]
        return ready[0] if ready else pull_and_store(**given)

    return pull


def answer_lost_tasks(on_expired: Callable[..., None]) -> Callable[..., None]:
    """Let a SuperNode answer for a process that died before it read its message.

    Flower answers only for messages that were read, and waits for ever for others.
    """

    @wraps(on_expired)
    def expired(state: Any, tasks: list[Any]) -> None:
        runs = {task.run_id for task in tasks}
        with state.lock_msg_store:
            for entry in state.msg_store.values():
                metadata = entry.message.metadata
                if metadata.run_id in runs and not metadata.reply_to_message_id:
                    entry.is_retrieved = True
        on_expired(state, tasks)

    return expired


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
