"""Messages to nodes and their answers: polled fast, each waited for once, all counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sofa_fl.deploy.transport.wire import Parcel

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 0.25  # seconds between two looks for answers
MARGIN = 5.0  # seconds that a message lives longer than its answer is waited for
LOOK_AROUND = 3.0  # seconds between two looks at who is connected at all


class Post(Protocol):
    """What carries messages; `grid.py` has Flower's."""

    def nodes(self) -> set[int]:
        """Who is connected, as far as the carrier knows."""

    def send(self, parcels: Mapping[int, Parcel], kind: str, seconds: float) -> dict[int, str]:
        """Send one message to each; a name for every message that was taken."""

    def collect(self, letters: Iterable[str]) -> dict[str, Parcel | str]:
        """The answers that are there, by the name of the message; a text says what went wrong."""


@dataclass(slots=True)
class Traffic:
    """Bytes of the arrays in all messages so far."""

    down: int = 0
    up: int = 0


Recorder = Callable[[dict[str, Any]], None]


def ignore(_event: dict[str, Any]) -> None:
    """Record nothing."""


@dataclass(slots=True)
class Office:
    """Sends and collects.

    Attributes:
        timeout: Seconds after which an answer is not waited for any longer.
        record: Is told of every exchange: how long it took, and what went wrong.
    """

    post: Post
    timeout: float
    record: Recorder = ignore
    traffic: Traffic = field(default_factory=Traffic)
    _hellos: dict[int, str] = field(default_factory=dict)  # sent, and not yet answered

    def exchange(self, asks: Mapping[int, Parcel], kind: str) -> dict[int, Parcel | str]:
        """Send to all, and wait for all; who does not answer in time answers with a text."""
        if not asks:
            return {}
        began = time.monotonic()
        letters = self.send(asks, kind)
        sent = time.monotonic() - began
        answers: dict[int, Parcel | str] = dict.fromkeys(asks.keys() - letters.keys(), "not sent")
        arrived: dict[int, float] = {}
        pause, looked, gone = FIRST_PAUSE, began, set[int]()
        while letters:
            found = self.collect(letters)
            now = time.monotonic()
            answers |= found
            arrived |= dict.fromkeys(found, round(now - began, 3))
            letters = {node: letter for node, letter in letters.items() if node not in found}
            if letters and now - began > self.timeout:
                answers |= dict.fromkeys(letters, f"no answer within {self.timeout:g} s")
                break
            if letters and now - looked > LOOK_AROUND:
                away = letters.keys() - self.post.nodes()
                answers |= dict.fromkeys(away & gone, "disconnected")  # seen to be gone twice
                letters = {n: letter for n, letter in letters.items() if n not in away & gone}
                gone, looked = set(away), now
            if letters:
                time.sleep(pause)
            pause = FIRST_PAUSE if found else min(pause * 1.3, LONGEST_PAUSE)
        self._record(asks, answers, kind, began, sent, arrived)
        return answers

    def greet(self, parcel: Parcel, known: Iterable[int]) -> dict[int, Parcel | str]:
        """Say hello to all who are connected but not `known`, and return answers to that.

        Nobody is waited for: who does not answer costs nothing, and is heard whenever it does.
        """
        strangers = self.post.nodes() - set(known)
        new = strangers - self._hellos.keys()
        if new:
            self._hellos |= self.send(dict.fromkeys(new, parcel), "query", wait=24 * 3600)
        found = self.collect(self._hellos)
        for node in found:
            del self._hellos[node]
        return found

    def send(self, asks: Mapping[int, Parcel], kind: str, wait: float = 0) -> dict[int, str]:
        self.traffic.down += sum(parcel.nbytes for parcel in asks.values())
        return self.post.send(asks, kind, wait or self.timeout + MARGIN)

    def collect(self, letters: Mapping[int, str]) -> dict[int, Parcel | str]:
        if not letters:
            return {}
        nodes = {letter: node for node, letter in letters.items()}
        found = {nodes[letter]: a for letter, a in self.post.collect(nodes).items()}
        self.traffic.up += sum(a.nbytes for a in found.values() if isinstance(a, Parcel))
        return found

    def _record(
        self,
        asks: Mapping[int, Parcel],
        answers: Mapping[int, Parcel | str],
        kind: str,
        began: float,
        sent: float,
        arrived: Mapping[int, float],
    ) -> None:
        good = {node: a for node, a in answers.items() if isinstance(a, Parcel)}
        self.record(
            {
                "exchange": kind,
                "asks": {str(n): sorted(k for k, v in p.header.items() if v and k in WORK)
                         for n, p in asks.items()},
                "seconds": round(time.monotonic() - began, 3),
                "sending": round(sent, 3),
                "arrived": {str(node): when for node, when in arrived.items()},
                "worked": {str(n): _seconds(a, "worked") for n, a in good.items()},
                "prepared": {str(n): _seconds(a, "prepared") for n, a in good.items()},
                "bytes_down": {str(node): ask.nbytes for node, ask in asks.items()},
                "bytes_up": {str(node): answer.nbytes for node, answer in good.items()},
                "failed": {str(n): a for n, a in answers.items() if isinstance(a, str)},
            }
        )  # fmt: skip


WORK = ("tasks", "exams", "embeds", "give")


def _seconds(answer: Parcel, name: str) -> float:
    found = answer.header.get(name)
    return round(found, 3) if isinstance(found, float) else 0.0
