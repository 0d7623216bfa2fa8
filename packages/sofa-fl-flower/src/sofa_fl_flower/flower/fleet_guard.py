"""Checks at the SuperLink: a SuperNode sends its own answers only, and no more than it needs.

Flower checks who calls, but not what a registered SuperNode sends: it could command other
SuperNodes in the server's name, announce messages without end, and fill the server's disk. What is
patched is not Flower's public interface: the extra `flower` pins its version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from logging import WARNING
from typing import Any

from fastapi import HTTPException
from flwr.common import log
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.superlink.servicer.fleet import fleet_handlers

from sofa_fl_flower.flower.inbox import max_parts

MAX_SESSIONS = 10_000  # answers on their way, of which it remembers how much has come
MAX_ANNOUNCEMENT = 1 << 16  # bytes, apart from the list of parts


def guard_fleet(max_bytes: int) -> None:
    """Check what SuperNodes push before Flower handles it."""
    handlers: Any = fleet_handlers  # what is patched is not its public interface
    guard = FleetGuard(handlers.push_messages, handlers.push_object, max_bytes)
    handlers.push_messages = guard.push_messages
    handlers.push_object = guard.push_object


@dataclass(slots=True)
class FleetGuard:
    """Refuses what no honest SuperNode sends; the SuperNode gets an error, and nobody else."""

    inner_messages: Callable[..., Any]
    inner_object: Callable[..., Any]
    max_bytes: int
    _sessions: dict[str, tuple[int, int]] = field(default_factory=dict)  # node, and bytes left

    def push_messages(self, request: Any, state: Any) -> Any:
        """Take the announcement of an answer."""
        node = request.node.node_id
        if (why := why_refused(request, max_parts(self.max_bytes))) is not None:
            raise refused(node, why)
        response = self.inner_messages(request=request, state=state)
        self._sessions[response.session_id] = node, self.max_bytes
        while len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return response

    def push_object(self, request: Any, state: Any) -> Any:
        """Take a part of an answer."""
        node, size = request.node.node_id, len(request.object_content)
        owner, left = self._sessions.get(request.session_id, (None, 0))
        if owner != node:
            raise refused(node, "a part must belong to an answer that this machine has announced")
        if size > left:
            raise refused(node, f"an answer must have at most {self.max_bytes:,} bytes")
        self._sessions[request.session_id] = node, left - size
        return self.inner_object(request=request, state=state)


def why_refused(request: Any, most: int) -> str | None:
    """Why an announcement is none of an answer of this SuperNode, if it is not."""
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        return "answers must be announced one by one"
    message, tree = request.messages_list[0], request.message_object_trees[0]
    if not message.metadata.reply_to_message_id:
        return "a machine may answer messages, but not send its own"
    if message.metadata.src_node_id != request.node.node_id:
        return "a machine may answer only for itself"
    if message.ByteSize() > MAX_ANNOUNCEMENT:
        return f"an announcement must have at most {MAX_ANNOUNCEMENT:,} bytes"
    if len(list(islice(iterate_object_tree(tree), most + 1))) > most:
        return f"an answer must have at most {most} parts"
    return None


def refused(node: int, why: str) -> HTTPException:
    """The answer to a SuperNode, which is also logged."""
    log(WARNING, "Refused a request of SuperNode %s: %s", node, why)
    return HTTPException(400, why)
