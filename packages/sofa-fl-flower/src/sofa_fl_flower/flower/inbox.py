"""Answers from the SuperLink, taken part by part, so that nobody waits for a slow or hostile one.

Flower's own `pull_messages` fetches one announced answer after another and waits for the parts of
each: a single machine that announces answers and sends no parts would stop a run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from logging import WARNING
from typing import Any

import httpx
from flwr.app import Message
from flwr.common import log
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from sofa_fl_flower.transport.message_checks import MessageError

PART = 5_000_000  # bytes; Flower cuts arrays into parts that are somewhat larger
FEW_PARTS = 10  # at least; an answer without a large array has three
SLICE = 0.5  # seconds for one answer before the others have their turn
SERVER = Node(node_id=SUPERLINK_NODE_ID)
FAILURES = (httpx.HTTPStatusError, ValueError)  # of the SuperLink; the next poll tries again

# An answer; or what is wrong with it, which is the machine's fault; or why there is none.
Pulled = Message | MessageError | str


@dataclass(slots=True)
class Announced:
    """An answer that the SuperLink has announced, and the parts of it that are here."""

    id: str
    missing: list[str]
    since: float
    parts: dict[str, bytes] = field(default_factory=dict)
    error: str = ""  # what is wrong with it
    is_lost: bool = False  # whether it will not come

    @property
    def age(self) -> float:
        return time.monotonic() - self.since

    @property
    def is_done(self) -> bool:
        return bool(self.error) or self.is_lost or not self.missing


def max_parts(max_bytes: int) -> int:
    """The largest number of parts that an answer of this many bytes can have."""
    return FEW_PARTS + max_bytes // PART


class Inbox:
    """Fetches answers over the connection of Flower's `HttpGrid`.

    Args:
        grid: Flower's grid.
        timeout: Seconds that the parts of an answer may take once it is announced.
        max_bytes: The most bytes that one answer may have.
    """

    def __init__(self, grid: Any, timeout: float, max_bytes: int) -> None:
        self.timeout, self.max_bytes = timeout, max_bytes
        self.max_parts = max_parts(max_bytes)
        self._grid = grid
        self._announced: dict[str, Announced] = {}  # by the id of the message that is answered

    def pull(self, ids: Iterable[str]) -> dict[str, Pulled]:
        """The complete answers to messages, by the messages' ids, without waiting for others."""
        wanted = set(ids)
        self._find_new(wanted)
        for id, answer in self._announced.items():
            if id in wanted:
                self._fetch(answer)
            answer.is_lost |= bool(answer.missing) and answer.age > self.timeout
        done = {id: a for id, a in self._announced.items() if a.is_done}
        for id, answer in done.items():
            del self._announced[id]
            self._confirm(answer)
        return {id: _put_together(answer) for id, answer in done.items() if id in wanted}

    def _find_new(self, wanted: set[str]) -> None:
        """Note which answers the SuperLink announces; it announces each once."""
        if not (new := wanted - self._announced.keys()):
            return
        try:
            response = self._client.PullMessages(PullAppMessagesRequest(message_ids=new))
        except FAILURES as error:
            log(WARNING, "The SuperLink failed to list answers; asking again: %s", error)
            return
        for message, tree in zip(response.messages_list, response.message_object_trees):
            # What the SuperLink says is checked; what the answer says of itself may be forged.
            if (id := message.metadata.reply_to_message_id) in new:
                nodes = islice(iterate_object_tree(tree), self.max_parts + 1)
                parts = list(dict.fromkeys(node.object_id for node in nodes))
                answer = Announced(message.metadata.message_id, parts, time.monotonic())
                if len(parts) > self.max_parts:
                    answer.error = (
                        f"an answer must have at most {self.max_parts} parts, but has more"
                    )
                self._announced[id] = answer

    def _fetch(self, answer: Announced) -> None:
        """Fetch the parts that have arrived at the SuperLink, up to the first that has not."""
        began = time.monotonic()
        while not answer.is_done:
            part = answer.missing[0]
            request = PullObjectRequest(node=SERVER, run_id=self._run_id, object_id=part)
            try:
                response = self._client.PullObject(request)
            except FAILURES as error:
                log(WARNING, "The SuperLink failed to send a part; asking again: %s", error)
                return
            if not response.object_available:
                answer.is_lost = not response.object_found
                return
            answer.parts[part] = response.object_content
            del answer.missing[0]
            if sum(map(len, answer.parts.values())) > self.max_bytes:
                answer.error = (
                    f"an answer must have at most {self.max_bytes:,} bytes, but has more; raise "
                    "`max_answer` to allow it"
                )
            if time.monotonic() - began >= SLICE:
                return

    def _confirm(self, answer: Announced) -> None:
        """Let the SuperLink delete an answer."""
        request = ConfirmMessageReceivedRequest(
            node=SERVER, run_id=self._run_id, message_object_id=answer.id
        )
        try:
            self._client.ConfirmMessageReceived(request)
        except FAILURES as error:
            log(WARNING, "The SuperLink failed to delete an answer: %s", error)

    @property
    def _client(self) -> Any:
        return self._grid._runtime_client

    @property
    def _run_id(self) -> int:
        return int(self._grid.run.run_id)


def _put_together(answer: Announced) -> Pulled:
    if answer.is_lost:
        return "an answer was announced, but some of its parts were never sent"
    if answer.error:
        return MessageError(answer.error)
    try:
        found = inflate_object_from_contents(answer.id, answer.parts)
    except Exception as error:  # whatever one machine sent
        return MessageError(f"the parts of an answer are not a message: {error!r}")
    if not isinstance(found, Message):
        return MessageError(f"an answer must be a message, got a {type(found).__name__}")
    return found
