"""A SuperLink without processes: Flower's own state and handlers, with a server and SuperNodes."""

from __future__ import annotations

import hashlib
import secrets
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.config_loader import (
    get_federation_manager,
    get_objectstore_linkstate_factories,
)
from flwr.superlink.grid import HttpGrid
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers

HANDLERS = {
    "PullMessages": runtime_handlers.pull_messages,
    "PushMessages": runtime_handlers.push_messages,
    "PullObject": runtime_handlers.pull_object,
    "PushObject": runtime_handlers.push_object,
    "ConfirmMessageReceived": runtime_handlers.confirm_message_received,
}


def as_server(patch: pytest.MonkeyPatch, run: int) -> None:
    """Be the server of a run in this process, for Flower asks who creates a message."""
    for name, value in (("_run_id", run), ("_node_id", 1), ("_task_id", 3)):
        patch.setattr(TaskIdentity, name, value)


class Federation:
    """Flower's state in a file, and a grid whose requests end in Flower's handlers.

    Attributes:
        calls: What the server has called.
        fails: What it calls in vain, and the error that it gets.
    """

    def __init__(self, folder: Path) -> None:
        managers = str(folder / "state.db"), get_federation_manager()
        with warnings.catch_warnings(action="ignore"):  # how Flower sets up its database
            self.state = get_objectstore_linkstate_factories(*managers)[1].state()
        self.run = self.state.create_run(
            "app", "1", "hash", {}, NOOP_FEDERATION_ID, None, None, TaskType.SERVER_APP
        )
        found = self.state.get_run_info(run_ids=[self.run])[0]
        assert found.primary_task_id is not None
        self.state.claim_task(found.primary_task_id)
        self.state.activate_task(found.primary_task_id)
        self.calls: list[str] = []
        self.fails: dict[str, Exception] = {}
        grid: Any = HttpGrid("127.0.0.1:1", insecure=True, token="token")
        grid._client = self
        self.grid = grid
        self.grid.set_run(found)

    def __getattr__(self, name: str) -> Any:
        if name not in HANDLERS:
            raise AttributeError(name)

        def call(request: Any) -> Any:
            self.calls.append(name)
            if name in self.fails:
                raise self.fails[name]
            return HANDLERS[name](request, self.state, SimpleNamespace(run_id=self.run))  # type: ignore[arg-type]

        return call

    def send(self, *nodes: SuperNode) -> list[str]:
        """Send a message to each SuperNode, as the server does."""
        messages = [Message(random_record(), node.id, "query", ttl=600) for node in nodes]
        return list(self.grid.push_messages(messages))


class SuperNode:
    """A registered SuperNode that sends whatever it likes."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.state = federation, federation.state
        self.id = self.state.create_node("aid", "name", secrets.token_bytes(32), 600.0)
        self.state.activate_node(self.id, 600.0)
        self.node = Node(node_id=self.id)

    def receive(self) -> Message:
        request = PullMessagesRequest(node=self.node)
        found = fleet_handlers.pull_messages(request, self.state, self.state.object_store)
        return message_from_proto(found.messages_list[0])

    def announce(self, message: Message, tree: ObjectTree | None = None) -> PushMessagesResponse:
        """Say that an answer comes; `tree` lists its parts."""
        tree = get_object_tree(message) if tree is None else tree
        if message.has_content():
            message = remove_content_from_message(message)
        return fleet_handlers.push_messages(
            request=PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(message)],
                message_object_trees=[tree],
            ),
            state=self.state,
        )

    def push(self, session: str, part: str, content: bytes) -> bool:
        request = PushObjectRequest(
            node=self.node,
            run_id=self.federation.run,
            object_id=part,
            object_content=content,
            session_id=session,
        )
        return fleet_handlers.push_object(request=request, state=self.state).stored

    def send_parts(self, message: Message, session: str, leave: int = 0) -> None:
        """Send the parts of an answer, all but some."""
        parts = list(get_all_nested_objects(message).items())
        for part, content in parts[: len(parts) - leave]:
            assert self.push(session, part, content.deflate())

    def answer(self, asked: Message, leave: int = 0) -> Message:
        """Answer as an honest SuperNode does; `leave` parts never arrive."""
        reply = reply_to(asked)
        self.send_parts(reply, self.announce(reply).session_id, leave)
        return reply


def reply_to(asked: Message, size: int = 8) -> Message:
    return with_id(Message(random_record(size), reply_to=asked))


def command(run: int, to: int) -> Message:
    """A message that claims to come from the server."""
    metadata = Metadata(
        run_id=run,
        message_id="",
        src_node_id=SUPERLINK_NODE_ID,
        dst_node_id=to,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=600,
        message_type="query",
    )
    return with_id(make_message(metadata=metadata, content=random_record()))


def random_record(size: int = 8) -> RecordDict:
    """Unlike any other, as what is encrypted; Flower stores equal parts once."""
    return RecordDict({"sofa": ConfigRecord({"json": "{}", "data": secrets.token_bytes(size)})})


def with_id(message: Message) -> Message:
    message.metadata.__dict__["_message_id"] = message.object_id
    return message


def tree_of(root: str, parts: Sequence[object] = (), depth: int = 0) -> ObjectTree:
    """A list of parts that nobody has: so many beside each other, and so many below each other."""
    children = [ObjectTree(object_id=_hash(part)) for part in parts]
    if depth:
        below = ObjectTree(object_id=_hash("last"))
        for level in range(depth - 1):
            below = ObjectTree(object_id=_hash(("level", level)), children=[below])
        children.append(below)
    return ObjectTree(object_id=root, children=children)


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
