"""Exchanges with machines: send messages, poll for answers until a timeout, count bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol

from sofa_fl_flower.transport.message_checks import MessageError, shown
from sofa_fl_flower.transport.wire_message import WireMessage

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 0.25  # seconds between two polls for answers
EXTRA_LIFE = 5.0  # seconds that a message lives beyond the wait for its answer
HELLO_LIFE = 24 * 3600.0  # seconds that a hello may stay unanswered
CONNECTION_CHECK = 3.0  # seconds between two checks of who is connected
WORK = ("tasks", "exams", "embeds", "unmask", "give")  # what a message may ask for
Answer = WireMessage | str  # an answer, or the reason why there is none


def accepted(answer: Answer) -> WireMessage:
    """Return an answer that can be used; raise `MessageError` with the reason otherwise."""
    if isinstance(answer, str):
        raise MessageError(shown(answer))
    answer.check_version()
    return answer


def flaw_of_answer(error: Exception) -> str:
    """What was wrong with an answer, in a line."""
    if isinstance(error, MessageError):
        return shown(error)
    return shown(f"its answer cannot be used: {error!r}")


class Messenger(Protocol):
    """Carries messages; `flower/flower_messages.py` does it with Flower."""

    def machines(self) -> set[int]:
        """The machines that are connected, as far as the messenger knows."""

    def send(
        self, messages: Mapping[int, WireMessage], kind: str, seconds: float
    ) -> dict[int, str]:
        """Send one message to each machine; return the ids of the messages that were accepted.

        After `seconds` a message and its answer may be dropped.
        """

    def collect(self, ids: Iterable[str]) -> dict[str, Answer]:
        """The answers that have arrived, by the ids of their messages."""


@dataclass(slots=True)
class Traffic:
    """Bytes of the arrays in all messages so far."""

    down: int = 0
    up: int = 0


def record_nothing(_event: dict[str, Any]) -> None:
    """Record nothing."""


@dataclass(slots=True)
class Exchange:
    """Sends messages and collects the answers.

    Attributes:
        timeout: Seconds to wait for an answer.
        record: Called after every exchange with how long it took and what failed.
    """

    messenger: Messenger
    timeout: float
    record: Callable[[dict[str, Any]], None] = record_nothing
    traffic: Traffic = field(default_factory=Traffic)
    _hellos: dict[int, str] = field(default_factory=dict)  # sent, and not yet answered

    def ask(self, messages: Mapping[int, WireMessage], kind: str) -> dict[int, Answer]:
        """Send to all machines and wait for all; who does not answer in time has a reason."""
        if not messages:
            return {}
        began = time.monotonic()
        waiting = self._send(messages, kind, self.timeout + EXTRA_LIFE)
        sent = time.monotonic() - began
        answers: dict[int, Answer] = dict.fromkeys(messages.keys() - waiting.keys(), "not sent")
        arrived: dict[int, float] = {}
        pause, last_check, missing = FIRST_PAUSE, began, set[int]()
        while waiting:
            new = self._collect(waiting)
            now = time.monotonic()
            answers |= new
            arrived |= dict.fromkeys(new, round(now - began, 3))
            waiting = {machine: id for machine, id in waiting.items() if machine not in new}
            if waiting and now - began > self.timeout:
                answers |= dict.fromkeys(waiting, f"no answer within {self.timeout:g} s")
                break
            if waiting and now - last_check > CONNECTION_CHECK:
                away = waiting.keys() - self.messenger.machines()
                lost = away & missing  # in two checks: one may have missed a short reconnection
                answers |= dict.fromkeys(lost, "disconnected")
                waiting = {machine: id for machine, id in waiting.items() if machine not in lost}
                missing, last_check = set(away), now
            if waiting:
                time.sleep(pause)
            pause = FIRST_PAUSE if new else min(pause * 1.3, LONGEST_PAUSE)
        self._record(messages, answers, kind, began, sent, arrived)
        return answers

    def greet(self, hello: WireMessage, known: Iterable[int]) -> dict[int, Answer]:
        """Send a hello to connected machines that are not `known`; return answers to hellos.

        It does not wait: a machine may answer during any later call.
        """
        new = self.messenger.machines() - set(known) - self._hellos.keys()
        if new:
            self._hellos |= self._send(dict.fromkeys(new, hello), "query", HELLO_LIFE)
        answers = self._collect(self._hellos)
        for machine in answers:
            del self._hellos[machine]
        return answers

    def _send(
        self, messages: Mapping[int, WireMessage], kind: str, seconds: float
    ) -> dict[int, str]:
        self.traffic.down += sum(message.nbytes for message in messages.values())
        return self.messenger.send(messages, kind, seconds)

    def _collect(self, waiting: Mapping[int, str]) -> dict[int, Answer]:
        if not waiting:
            return {}
        machines = {id: machine for machine, id in waiting.items()}
        answers = {machines[id]: a for id, a in self.messenger.collect(machines).items()}
        self.traffic.up += sum(a.nbytes for a in answers.values() if isinstance(a, WireMessage))
        return answers

    def _record(
        self,
        messages: Mapping[int, WireMessage],
        answers: Mapping[int, Answer],
        kind: str,
        began: float,
        sent: float,
        arrived: Mapping[int, float],
    ) -> None:
        good = {n: answer for n, answer in answers.items() if isinstance(answer, WireMessage)}
        self.record(
            {
                "exchange": kind,
                "asks": {str(n): [k for k in sorted(WORK) if m.header.get(k)]
                         for n, m in messages.items()},
                "seconds": round(time.monotonic() - began, 3),
                "sending": round(sent, 3),
                "arrived": {str(n): when for n, when in arrived.items()},
                "worked": {str(n): _seconds(a, "worked") for n, a in good.items()},
                "prepared": {str(n): _seconds(a, "prepared") for n, a in good.items()},
                "bytes_down": {str(n): message.nbytes for n, message in messages.items()},
                "bytes_up": {str(n): answer.nbytes for n, answer in good.items()},
                "failed": {str(n): shown(a) for n, a in answers.items() if isinstance(a, str)},
            }
        )  # fmt: skip


def _seconds(answer: WireMessage, name: str) -> float:
    value = answer.header.get(name)
    return round(value, 3) if isinstance(value, float) and isfinite(value) else 0.0
