"""What a registered SuperNode may send to the SuperLink, with Flower's own handlers behind it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import HTTPException
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.superlink.servicer.fleet import fleet_handlers

from federation import Federation, SuperNode, as_server, command, reply_to, tree_of
from sofa_fl_flower.flower import fleet_guard
from sofa_fl_flower.flower.fleet_guard import guard_fleet
from sofa_fl_flower.flower.superlink import DEFAULTS, with_defaults

MOST = 2000  # bytes of an answer


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("link"))


@pytest.fixture
def federation(shared: Federation, monkeypatch: pytest.MonkeyPatch) -> Federation:
    as_server(monkeypatch, shared.run)
    handlers: Any = fleet_handlers
    for name in ("push_messages", "push_object"):
        monkeypatch.setattr(handlers, name, getattr(handlers, name))  # as it was, afterwards
    return shared


def test_flower_delivers_what_a_machine_sends_in_the_servers_name(federation: Federation) -> None:
    """If this fails, Flower has learned it, and the guard can go."""
    hostile, victim = SuperNode(federation), SuperNode(federation)
    forged = command(federation.run, victim.id)
    hostile.send_parts(forged, hostile.announce(forged).session_id)
    assert victim.receive().metadata.src_node_id == 1
    guard_fleet(MOST)
    forged = command(federation.run, victim.id)
    with pytest.raises(HTTPException, match="not send its own"):
        hostile.announce(forged)
    with pytest.raises(IndexError):
        victim.receive()


def test_nobody_answers_for_another(federation: Federation) -> None:
    hostile, victim = SuperNode(federation), SuperNode(federation)
    federation.send(victim)
    answer = reply_to(victim.receive())
    assert hostile.announce(answer).objects_to_push, "Flower would take it"
    guard_fleet(MOST)
    federation.send(victim)
    answer = reply_to(victim.receive())
    with pytest.raises(HTTPException, match="only for itself"):
        hostile.announce(answer)
    assert victim.announce(answer).objects_to_push


def test_an_honest_answer_arrives(federation: Federation) -> None:
    guard_fleet(MOST)
    node = SuperNode(federation)
    federation.send(node)
    node.answer(node.receive())


@pytest.mark.parametrize(("parts", "depth"), [(11, 0), (0, 11), (300_000, 0)])
def test_a_list_of_too_many_parts_is_refused_at_once(
    federation: Federation, parts: int, depth: int
) -> None:
    """Flower writes each to its database, and nobody else gets in meanwhile."""
    guard_fleet(MOST)
    node = SuperNode(federation)
    federation.send(node)
    answer = reply_to(node.receive())
    before = len(federation.state.object_store)
    with pytest.raises(HTTPException, match="at most 10 parts"):
        node.announce(answer, tree_of(answer.metadata.message_id, range(parts), depth))
    assert len(federation.state.object_store) == before


def test_an_answer_that_is_too_large_does_not_get_to_the_disk(federation: Federation) -> None:
    guard_fleet(MOST)
    node = SuperNode(federation)
    federation.send(node)
    answer = reply_to(node.receive(), size=MOST)
    session = node.announce(answer).session_id
    with pytest.raises(HTTPException, match="at most 2,000 bytes"):
        node.send_parts(answer, session)


def test_the_size_counts_over_all_parts(federation: Federation) -> None:
    guard_fleet(MOST)
    node = SuperNode(federation)
    federation.send(node)
    found = node.announce(reply_to(node.receive()))
    assert not node.push(found.session_id, found.objects_to_push[0], bytes(1500))
    with pytest.raises(HTTPException, match="at most 2,000 bytes"):
        node.push(found.session_id, found.objects_to_push[0], bytes(1500))


@pytest.mark.parametrize("session", ["", "unknown", None])
def test_nobody_sends_parts_of_what_another_has_announced(
    federation: Federation, session: str | None
) -> None:
    guard_fleet(MOST)
    hostile, victim = SuperNode(federation), SuperNode(federation)
    federation.send(victim)
    answer = reply_to(victim.receive())
    own = victim.announce(answer).session_id
    with pytest.raises(HTTPException, match="that this machine has announced"):
        hostile.send_parts(answer, own if session is None else session)
    victim.send_parts(answer, own)


def test_content_does_not_come_with_an_announcement(federation: Federation) -> None:
    guard_fleet(MOST)
    node = SuperNode(federation)
    federation.send(node)
    answer = reply_to(node.receive())
    answer.metadata.__dict__["_group_id"] = "x" * 100_000
    with pytest.raises(HTTPException, match="at most 65,536 bytes"):
        node.announce(answer, tree_of(answer.metadata.message_id))


@pytest.mark.parametrize("number", [0, 2])
def test_answers_are_announced_one_by_one(federation: Federation, number: int) -> None:
    guard_fleet(MOST)
    node = SuperNode(federation)
    request = PushMessagesRequest(node=node.node)
    for _ in range(number):
        request.messages_list.add()
        request.message_object_trees.add()
    with pytest.raises(HTTPException, match="one by one"):
        fleet_handlers.push_messages(request=request, state=node.state)


def test_only_the_newest_answers_are_remembered(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_guard, "MAX_SESSIONS", 1)
    guard_fleet(MOST)
    node = SuperNode(federation)
    federation.send(node)
    first = reply_to(node.receive())
    session = node.announce(first).session_id
    federation.send(node)
    node.answer(node.receive())
    with pytest.raises(HTTPException):
        node.send_parts(first, session)


def test_a_superlink_is_safe_without_options() -> None:
    found = with_defaults(["--port", "9", "--database=x"])
    assert found[:2] == ["--port", "9"]
    assert found[found.index("--host") + 1] == "127.0.0.1"
    assert found[-1] == "--enable-supernode-auth"
    assert "--database" not in found
    assert found.count("--port") == 1
    assert with_defaults(found) == found
    assert with_defaults(["--insecure"]) == ["--insecure"]
    assert set(DEFAULTS) <= set(with_defaults([]))
