"""Flower's grid as the server's messenger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from logging import WARNING
from typing import TypeVar

import httpx
from flwr.app import Message, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.superlink.grid import HttpGrid

from sofa_fl.deploy.flower.flower_messages import from_record, in_batches, to_record
from sofa_fl.deploy.flower.inbox import Inbox, Pulled
from sofa_fl.deploy.flower.sealing import PUBLIC, new_key, seal
from sofa_fl.deploy.masked_sum.pair_keys import public_of
from sofa_fl.deploy.server.exchange import Answer
from sofa_fl.deploy.transport.message_checks import MessageError
from sofa_fl.deploy.transport.wire_message import UNREADABLE, WireMessage

MAX_ANSWER = 1_000_000_000  # bytes
TRIES, PAUSE = 5, 1.0  # if the SuperLink fails, and the seconds between two

T = TypeVar("T")


class GridMessenger:
    """Sends messages over Flower's grid, without its pauses of three seconds.

    They are encrypted for every machine that has told its key, as all do with their first answer.
    An answer whose parts do not all arrive is as good as none, and costs no other machine time.
    """

    def __init__(self, grid: Grid, timeout: float, max_bytes: int = MAX_ANSWER) -> None:
        self.grid = grid
        self.key = new_key()
        self.keys: dict[int, str] = {}  # of machines
        self._sent: dict[str, int] = {}  # the machine of each message that is not answered
        # A simulation has a grid in memory: it has no connection, and no machine of somebody else.
        self._inbox = Inbox(grid, timeout, max_bytes) if isinstance(grid, HttpGrid) else None

    def machines(self) -> set[int]:
        return set(patiently(self.grid.get_node_ids, ()))

    def send(
        self, messages: Mapping[int, WireMessage], kind: str, seconds: float
    ) -> dict[int, str]:
        """Send in batches: one request announces a batch, and its parts travel in parallel."""
        sent: dict[int, str] = {}
        for batch in in_batches(messages):
            flower_messages = [
                Message(self._record_for(machine, message, kind), machine, kind, ttl=seconds)
                for machine, message in batch.items()
            ]
            ids = patiently(partial(self.grid.push_messages, flower_messages), ())
            sent |= {machine: id for machine, id in zip(batch, ids) if id}
        self._sent |= {id: machine for machine, id in sent.items()}
        return sent

    def _record_for(self, machine: int, message: WireMessage, kind: str) -> RecordDict:
        header = {**message.header, PUBLIC: public_of(self.key)}
        # A hello holds no secret, and asks for the key, which may be new.
        public = self.keys.get(machine) if kind != "query" else None
        return to_record(WireMessage(header, message.arrays), public)

    def collect(self, ids: Iterable[str]) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        for id, message in self._pull(list(ids)).items():
            # Who has answered is known by what was asked; what an answer says of it may be forged.
            machine = self._sent.pop(id, None)
            if machine is None:
                continue
            try:
                answers[id] = self._read(machine, message)
            except MessageError as error:
                answers[id] = WireMessage({UNREADABLE: str(error)})
        return answers

    def _pull(self, ids: list[str]) -> Mapping[str, Pulled]:
        if self._inbox is not None:
            return self._inbox.pull(ids)
        found = self.grid.pull_messages(ids)
        return {message.metadata.reply_to_message_id: message for message in found}

    def _read(self, machine: int, message: Pulled) -> Answer:
        if isinstance(message, MessageError):
            raise message
        if isinstance(message, str):
            return message
        if message.has_error():
            return f"{message.error.code}: {message.error.reason}"
        answer = from_record(message.content, self.key)
        if (public := answer.header.get(PUBLIC)) is not None:
            seal(b"", str(public))  # whether it is a key
            self.keys[machine] = str(public)
        return answer


def patiently(call: Callable[[], Iterable[T]], otherwise: Iterable[T]) -> Iterable[T]:
    """Call the SuperLink again if it fails; a run need not end with one bad answer."""
    for left in reversed(range(TRIES)):
        try:
            return call()
        except (httpx.HTTPStatusError, ObjectPushError) as error:
            log(WARNING, "The SuperLink failed; %d tries left: %s", left, error)
            time.sleep(PAUSE if left else 0)
    return otherwise
