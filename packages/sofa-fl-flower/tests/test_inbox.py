"""Machines that announce answers and send something else, or nothing: nobody waits for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from flwr.app import Message, RecordDict

from federation import Federation, SuperNode, as_server, command, reply_to, tree_of
from sofa_fl_flower.flower import inbox, server_app
from sofa_fl_flower.flower.inbox import FEW_PARTS, Inbox
from sofa_fl_flower.flower.server_app import GridMessenger, patiently
from sofa_fl_flower.server.exchange import Exchange
from sofa_fl_flower.transport.message_checks import MessageError
from sofa_fl_flower.transport.wire_message import WireMessage

T = 60.0  # seconds: far more than a test takes


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("link"))


@pytest.fixture
def federation(shared: Federation, monkeypatch: pytest.MonkeyPatch) -> Federation:
    as_server(monkeypatch, shared.run)
    shared.calls.clear()
    return shared


def two(federation: Federation) -> tuple[SuperNode, SuperNode, list[str]]:
    """An honest and a hostile machine, and the ids of messages to them."""
    honest, hostile = SuperNode(federation), SuperNode(federation)
    return honest, hostile, federation.send(honest, hostile)


@pytest.mark.parametrize("leave", [1, 3])
def test_nobody_waits_for_parts_that_do_not_come(federation: Federation, leave: int) -> None:
    """Formerly the server waited its whole time-out for each such answer, one after another."""
    others = [SuperNode(federation) for _ in range(5)]
    honest = SuperNode(federation)
    ids = federation.send(*others, honest)
    for one in others:
        one.answer(one.receive(), leave=leave)
    honest.answer(honest.receive())
    box = Inbox(federation.grid, T, 1000)
    began = time.monotonic()
    assert list(box.pull(ids)) == [ids[-1]]
    assert time.monotonic() - began < T / 10
    asked = federation.calls.count("PullObject")
    assert box.pull(ids[:-1]) == {}
    assert federation.calls.count("PullObject") == asked + 5, "one request for each, at a time"


def test_parts_may_arrive_one_by_one(federation: Federation) -> None:
    honest, _, ids = two(federation)
    reply = reply_to(honest.receive())
    session = honest.announce(reply).session_id
    box = Inbox(federation.grid, T, 1000)
    assert box.pull(ids) == {}
    honest.send_parts(reply, session)
    found = box.pull(ids)[ids[0]]
    assert isinstance(found, Message)
    assert found.content["sofa"]["json"] == "{}"
    assert box.pull(ids[:1]) != {}, "Flower says that it knows no such message any more"


def test_parts_one_by_one_do_not_extend_the_time(federation: Federation) -> None:
    _, hostile, ids = two(federation)
    hostile.answer(hostile.receive(), leave=1)
    box = Inbox(federation.grid, 0.2, 1000)
    assert box.pull(ids) == {}
    time.sleep(0.25)
    assert box.pull(ids) == {
        ids[1]: "an answer was announced, but some of its parts were never sent"
    }


def test_the_superlink_keeps_nothing_of_an_answer_that_is_given_up(federation: Federation) -> None:
    _, hostile, ids = two(federation)
    left = len(federation.state.object_store)
    hostile.answer(hostile.receive(), leave=1)
    assert len(federation.state.object_store) > left
    box = Inbox(federation.grid, 0.0, 1000)
    box.pull(ids)
    box.pull(ids[:1])
    assert len(federation.state.object_store) == left


def test_no_time_goes_into_messages_that_nobody_asked_for(federation: Federation) -> None:
    """Flower's SuperLink takes messages to the server from anybody, and hands them all over."""
    honest, hostile, ids = two(federation)
    for _ in range(5):
        hostile.announce(command(federation.run, to=1))
    honest.answer(honest.receive())
    assert list(Inbox(federation.grid, T, 1000).pull(ids)) == ids[:1]
    assert federation.calls.count("PullObject") == 3


def test_an_answer_of_too_many_parts_is_not_fetched(federation: Federation) -> None:
    _, hostile, ids = two(federation)
    reply = reply_to(hostile.receive())
    hostile.announce(reply, tree_of(reply.metadata.message_id, range(FEW_PARTS)))
    found = Inbox(federation.grid, T, 1000).pull(ids)[ids[1]]
    assert "at most 10 parts" in str(found)
    assert federation.calls.count("PullObject") == 0


def test_an_answer_of_too_many_bytes_is_an_error(federation: Federation) -> None:
    honest, hostile, ids = two(federation)
    reply = reply_to(hostile.receive(), size=10_000)
    hostile.send_parts(reply, hostile.announce(reply).session_id)
    honest.answer(honest.receive())
    found = Inbox(federation.grid, T, 1000).pull(ids)
    assert isinstance(found[ids[0]], Message)
    assert isinstance(found[ids[1]], MessageError)
    assert "at most 1,000 bytes" in str(found[ids[1]])


def test_an_answer_that_is_no_message_is_an_error(federation: Federation) -> None:
    """Formerly the run ended."""
    _, hostile, ids = two(federation)
    reply, other = reply_to(hostile.receive()), RecordDict()
    reply.metadata.__dict__["_message_id"] = other.object_id
    session = hostile.announce(reply, tree_of(other.object_id)).session_id
    assert hostile.push(session, other.object_id, other.deflate())
    messenger = GridMessenger(federation.grid, T)
    messenger._sent[ids[1]] = hostile.id
    found = messenger.collect(ids)[ids[1]]
    assert isinstance(found, WireMessage)
    with pytest.raises(MessageError, match="got a RecordDict"):
        found.check_version()


def test_an_answer_whose_parts_do_not_fit_is_an_error(federation: Federation) -> None:
    _, hostile, ids = two(federation)
    reply = reply_to(hostile.receive())
    session = hostile.announce(reply, tree_of(reply.metadata.message_id)).session_id
    assert hostile.push(session, reply.metadata.message_id, reply.deflate()), "no children"
    found = Inbox(federation.grid, T, 1000).pull(ids)[ids[1]]
    assert "are not a message" in str(found)


def test_a_part_that_is_not_what_was_announced_is_not_taken(federation: Federation) -> None:
    _, hostile, _ = two(federation)
    found = hostile.announce(reply_to(hostile.receive()))
    assert not hostile.push(found.session_id, found.objects_to_push[0], b"something else")


def test_a_second_answer_changes_nothing(federation: Federation) -> None:
    honest, _, ids = two(federation)
    asked = honest.receive()
    first = honest.answer(asked)
    honest.announce(reply_to(asked, size=2))
    found = Inbox(federation.grid, T, 1000).pull(ids)[ids[0]]
    assert isinstance(found, Message)
    assert found.content["sofa"]["data"] == first.content["sofa"]["data"]


def test_an_answer_counts_for_the_message_that_the_superlink_names(federation: Federation) -> None:
    """What it says of itself may be forged: here, that it answers the message to another."""
    honest, hostile, ids = two(federation)
    reply = reply_to(hostile.receive())
    reply.metadata.__dict__["_reply_to_message_id"] = ids[0]
    reply.metadata.__dict__["_message_id"] = reply.object_id
    hostile.announce(reply)
    box = Inbox(federation.grid, T, 1000)
    assert box.pull(ids) == {}, "its receiver was another"
    honest.answer(honest.receive())
    assert list(box.pull(ids)) == ids[:1]


def error(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "https://link")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status))


@pytest.mark.parametrize("name", ["PullMessages", "PullObject", "ConfirmMessageReceived"])
def test_a_superlink_that_fails_is_asked_again(federation: Federation, name: str) -> None:
    """Formerly one error 500 ended the run."""
    honest, _, ids = two(federation)
    honest.answer(honest.receive())
    box = Inbox(federation.grid, T, 1000)
    federation.fails = {name: error(500)}
    found = box.pull(ids)
    federation.fails = {}
    assert list(found or box.pull(ids)) == ids[:1]


def test_a_superlink_that_fails_is_given_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_app, "PAUSE", 0.0)
    answers: list[Any] = [error(500), error(503), [7]]

    def call() -> list[int]:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return list(found)

    assert patiently(call, ()) == [7]
    answers = [error(500)] * server_app.TRIES
    assert patiently(call, ()) == ()
    answers = [ValueError("a bug")]
    with pytest.raises(ValueError, match="a bug"):
        patiently(call, ())


class HostileMessenger(GridMessenger):
    """Every machine announces an answer at once, and never sends all of it."""

    hostile: Sequence[SuperNode] = ()

    def send(self, *given: Any) -> dict[int, str]:
        sent = super().send(*given)
        for one in self.hostile:
            one.answer(one.receive(), leave=1)
        return sent


def test_machines_that_send_no_parts_cost_one_time_out_together(federation: Federation) -> None:
    """An exchange with k of them takes T, not k times T."""
    messenger = HostileMessenger(federation.grid, 0.5)
    messenger.hostile = [SuperNode(federation) for _ in range(10)]
    told: list[dict[str, Any]] = []
    exchange = Exchange(messenger, 0.5, told.append)
    found = exchange.ask({one.id: WireMessage({}) for one in messenger.hostile}, "train")
    assert set(found.values()) == {"no answer within 0.5 s"}
    assert 0.5 <= told[0]["seconds"] < 3, "ten times 0.5 s would be 5 s"


def test_a_large_answer_does_not_keep_others_waiting(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "SLICE", 0.0)  # seconds: one part, then it is the others' turn
    honest, hostile, ids = two(federation)
    hostile.answer(hostile.receive())
    honest.answer(honest.receive())
    box = Inbox(federation.grid, T, 1000)
    assert [len(box.pull(ids)) for _ in range(3)] == [0, 0, 2]
