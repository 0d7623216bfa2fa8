"""Shorter pauses for Flower, and a message whose run ends while it is on its way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from flwr.app import Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode import start_client_internal
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from sofa_fl_flower.flower.flower_patches import (
    FIRST_RETRY,
    SteadyHeart,
    answer_lost_tasks,
    drop_ended_runs,
    limit_waits,
    local_retries,
    send_late_replies,
    shorten_retries,
)


@pytest.mark.parametrize("name", ["pull_objects", "pull_and_inflate_object_from_tree"])
def test_a_part_is_asked_for_again_soon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = getattr(inflatable_utils, name).__kwdefaults__
    monkeypatch.setitem(defaults, "initial_backoff", 1.0)
    before = dict(defaults)
    shorten_retries()
    assert defaults == {**before, "initial_backoff": FIRST_RETRY}


def test_a_message_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inflatable_utils.pull_objects.__kwdefaults__, "max_time", 7200)  # type: ignore[arg-type]
    limit_waits(0.2)
    unavailable = MagicMock(side_effect=inflatable_utils.ObjectUnavailableError("part"))
    began = time.monotonic()
    with pytest.raises(inflatable_utils.ObjectPullError):
        inflatable_utils.pull_objects(["part"], unavailable, initial_backoff=0.01)
    assert 0.2 <= time.monotonic() - began < 60


def receive(pull: Callable[..., int | None], error: BaseException) -> MagicMock:
    """A node gets a message of a run that it knows, but `error` instead of its parts."""
    state = MagicMock()
    state.create_task.return_value = 7
    store = MagicMock()
    store.preregister.return_value = ["part"]
    given: dict[str, Any] = dict.fromkeys(
        ("node_config", "get_run", "get_fab", "trusted_entities"), MagicMock()
    )
    given["receive"] = lambda: (MagicMock(), MagicMock())
    given["pull_object"] = MagicMock(side_effect=error)
    given["confirm_message_received"] = MagicMock()
    assert pull(state=state, object_store=store, **given) is None
    return state


def test_the_task_of_a_run_that_has_ended_does_not_stay() -> None:
    pull = start_client_internal._pull_and_store_message
    assert not receive(pull, RunNotRunningException()).finish_task.called, (
        "Flower does it by itself now: `drop_ended_runs` can go"
    )
    state = receive(drop_ended_runs(pull), RunNotRunningException())
    assert state.finish_task.call_args.args[0] == 7
    assert "the run has ended" in state.finish_task.call_args.kwargs["details"]
    assert receive(drop_ended_runs(pull), ValueError("other")).finish_task.called


class Node:
    """Flower's SuperNode without its connections, which serves messages of two runs."""

    def __init__(self, patch: Callable[..., Any]) -> None:
        self.store = ObjectStoreFactory().store()
        self.state = InMemoryNodeState(self.store)
        self.state.set_node_id(1)
        for run_id in (1, 2):
            self.state.store_run(Run.create_empty(run_id))
        self.pull = patch(start_client_internal._pull_and_store_message)
        self.sent: list[str] = []

    def message(self, run_id: int) -> Message:
        metadata = Metadata(
            run_id=run_id,
            message_id=f"{run_id}" * 64,
            src_node_id=0,
            dst_node_id=1,
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=60,
            message_type="query",
        )
        return make_message(metadata=metadata, content=RecordDict())

    def receive(self, message: Message | None, confirm: Callable[..., None]) -> int | None:
        """One turn of the SuperNode, up to where it waits for a reply."""
        given: dict[str, Any] = dict.fromkeys(
            ("node_config", "get_run", "get_fab", "trusted_entities", "pull_object"), MagicMock()
        )
        given["receive"] = lambda: None if message is None else (message, MagicMock())
        store = MagicMock()
        store.preregister.return_value = []
        given |= {"confirm_message_received": confirm, "object_store": store}
        run_id: int | None = self.pull(state=self.state, **given)
        return run_id

    def answer(self, message: Message) -> None:
        """What the ClientApp's process does."""
        self.state.get_messages_legacy(run_ids=[message.metadata.run_id], is_reply=False)
        reply = Message(RecordDict(), reply_to=message)
        reply.metadata.__dict__["_message_id"] = f"reply to {message.metadata.run_id}"
        self.state.store_message(reply)

    def push(self) -> None:
        """Send what is ready; Flower would wait here if there is nothing."""

        def send(message: Message, *_: object) -> tuple[set[str], str]:
            self.sent.append(message.metadata.message_id)
            if message.metadata.run_id == 1:
                raise RunNotRunningException
            return set(), ""

        start_client_internal._push_messages(self.state, MagicMock(), send, MagicMock())


def unchanged(pull: Callable[..., int | None]) -> Callable[..., int | None]:
    return pull


def serve_after_a_killed_server(patch: Callable[..., Any]) -> tuple[Node, int | None]:
    """A server dies before the receipt of its message; the next one sends another message.

    Returns what the last turn did, in which that server sends nothing and waits for the reply.
    """
    node = Node(patch)
    first, second = node.message(1), node.message(2)

    def confirm_late(*_: object) -> None:
        node.answer(first)  # while no server is there to confirm it to
        raise RunNotRunningException

    assert node.receive(first, confirm_late) is None
    if node.receive(second, MagicMock()) == 1:  # a reply is ready
        node.push()
        assert node.receive(second, MagicMock()) == 2
        node.answer(second)
    else:
        node.push()
        node.answer(second)
    return node, node.receive(None, MagicMock())


def test_a_reply_left_over_delays_no_other() -> None:
    node, ready = serve_after_a_killed_server(unchanged)
    assert node.sent == ["reply to 1"]
    assert ready is None, "Flower sends replies by itself now: `send_late_replies` can go"
    node, ready = serve_after_a_killed_server(lambda f: send_late_replies(drop_ended_runs(f)))
    assert ready == 2
    node.push()
    assert node.sent == ["reply to 1", "reply to 2"]
    assert node.receive(None, MagicMock()) is None


def test_a_process_that_died_before_it_read_its_message_is_answered_for() -> None:
    flower = InMemoryNodeState._on_task_tokens_expired
    tasks: list[Any] = [SimpleNamespace(run_id=2, type="flwr-clientapp")]
    replies = []
    for on_expired in (flower, answer_lost_tasks(flower)):
        node = Node(unchanged)
        for run_id in (1, 2):
            node.state.store_message(node.message(run_id))
        on_expired(node.state, tasks)
        replies.append([m.metadata.run_id for m in node.state.get_messages_legacy(is_reply=True)])
    assert replies == [[], [2]]


def test_a_task_that_was_given_up_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = MagicMock()
    monkeypatch.setattr("flwr.supercore.retry.http_retry.os.kill", killed)
    request = httpx.Request("POST", "http://node")

    def answer(status: int) -> Callable[[], None]:
        return MagicMock(
            side_effect=httpx.HTTPStatusError(
                "", request=request, response=httpx.Response(status, request=request)
            )
        )

    retries = local_retries()
    retries.wait_function = MagicMock()
    for status, tries in ((401, 1), (500, 1), (503, 3)):
        target = answer(status)
        with pytest.raises(httpx.HTTPStatusError):
            retries.invoke(target)
        assert target.call_count == tries  # type: ignore[attr-defined]
    assert not killed.called


def test_a_heart_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []
    done = threading.Event()

    def beat() -> bool:
        beats.append(1)
        if len(beats) == 1:
            raise ValueError("the server failed")
        done.set()
        return True

    monkeypatch.setattr(threading, "excepthook", lambda _: done.set())
    for kind, expected in ((HeartbeatSender, 1), (SteadyHeart, 2)):
        beats.clear()
        done.clear()
        heart = kind(beat)
        heart._retry_invoker.wait_function = MagicMock()
        heart.start()
        assert done.wait(30)
        assert len(beats) == expected
        if heart.is_running:
            heart.stop()
