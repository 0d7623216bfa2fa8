"""Messages that only their receiver can read, wherever they lie meanwhile."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from flwr.app import RecordDict

from sofa_fl_flower.flower import flower_messages, server_app
from sofa_fl_flower.flower.flower_messages import (
    MAX_INLINE,
    PUBLIC,
    from_record,
    new_key,
    seal,
    sealing_key_of,
    to_record,
    unseal,
)
from sofa_fl_flower.flower.server_app import GridMessenger
from sofa_fl_flower.masked_sum.masks import public_of
from sofa_fl_flower.transport.message_checks import MessageError
from sofa_fl_flower.transport.wire_message import UNREADABLE, WireMessage, refusal

SITE = sealing_key_of(b"k" * 32)
MESSAGE = WireMessage({"secret": "loss"}, {"x": np.arange(256, dtype=np.uint8)})


def all_bytes(record: RecordDict) -> bytes:
    """Everything that Flower would write down."""
    parts = [repr(dict(record.config_records["sofa"])).encode()]
    parts += [v for v in record.config_records["sofa"].values() if isinstance(v, bytes)]
    parts += [array.data for arrays in record.array_records.values() for array in arrays.values()]
    return b"".join(parts)


@pytest.mark.parametrize("limit", [MAX_INLINE, 8])
def test_nothing_of_a_sealed_message_can_be_read(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower_messages, "MAX_INLINE", limit)
    content = MESSAGE.arrays["x"].tobytes()
    plain, sealed = to_record(MESSAGE), to_record(MESSAGE, public_of(SITE))
    assert content in all_bytes(plain), "it would be seen"
    for secret in (content, content[100:120], b"secret", b"loss"):
        assert secret not in all_bytes(sealed)
    found = from_record(sealed, SITE)
    assert found.header == MESSAGE.header
    assert np.array_equal(found.arrays["x"], MESSAGE.arrays["x"])
    for key in (None, new_key()):
        with pytest.raises(MessageError, match="cannot be read"):
            from_record(sealed, key)


def test_a_message_that_was_altered_is_refused() -> None:
    content = seal(b"content", public_of(SITE))
    assert unseal(content, SITE) == b"content"
    assert seal(b"content", public_of(SITE)) != content, "every time with another key"
    for at in range(len(content)):
        altered = bytearray(content)
        altered[at] ^= 1
        if at != 31:  # the curve does not look at the last bit of a public key
            with pytest.raises(MessageError):
                unseal(bytes(altered), SITE)
    for short in (b"", content[:20], content[:-1], bytes(64)):
        with pytest.raises(MessageError):
            unseal(short, SITE)


@pytest.mark.parametrize("public", ["", "zz", "00" * 31, "00" * 32, "x" * 64])
def test_what_is_no_key_is_refused(public: str) -> None:
    with pytest.raises(MessageError, match="a public key must be"):
        seal(b"content", public)


def test_a_site_has_the_same_key_in_every_process() -> None:
    assert public_of(sealing_key_of(b"k" * 32)) == public_of(SITE)
    assert public_of(sealing_key_of(b"l" * 32)) != public_of(SITE)


def test_a_message_can_prove_who_it_is_from() -> None:
    """Anybody can encrypt for the server: its key is in every hello."""
    server, stranger = new_key(), new_key()
    proven = seal(b"content", public_of(server), SITE)
    assert unseal(proven, server, public_of(SITE)) == b"content"
    for other in (seal(b"content", public_of(server)), seal(b"x", public_of(server), stranger)):
        with pytest.raises(MessageError):
            unseal(other, server, public_of(SITE))
    with pytest.raises(MessageError):
        unseal(proven, server, public_of(stranger))


class Grid:
    """Flower's grid, with one machine that answers what it is told to."""

    def __init__(self) -> None:
        self.sent: list[RecordDict] = []
        self.answers: list[Any] = []

    def push_messages(self, messages: list[RecordDict]) -> list[str]:
        self.sent += messages
        return ["id", "other id"][: len(messages)]

    def pull_messages(self, _ids: list[str]) -> list[Any]:
        return self.answers


def answer_with(content: RecordDict) -> MagicMock:
    answer = MagicMock(content=content)
    answer.has_error.return_value = False
    answer.metadata.src_node_id = 8  # which may be forged
    answer.metadata.reply_to_message_id = "id"
    return answer


def test_a_server_seals_for_every_machine_that_told_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_app, "Message", lambda content, _to, _kind, ttl: content)
    grid: Any = Grid()
    messenger = GridMessenger(grid, 60)
    messenger.send({7: MESSAGE}, "query", 9.0)
    hello = from_record(grid.sent[0])
    public = hello.header[PUBLIC]
    reply = WireMessage({PUBLIC: public_of(SITE)}, MESSAGE.arrays)
    grid.answers = [answer_with(to_record(reply, public))]
    found = messenger.collect(["id"])["id"]
    assert isinstance(found, WireMessage)
    assert np.array_equal(found.arrays["x"], MESSAGE.arrays["x"])
    messenger.send({7: MESSAGE, 8: MESSAGE}, "train", 9.0)
    with pytest.raises(MessageError):
        from_record(grid.sent[1])
    assert from_record(grid.sent[1], SITE).header["secret"] == "loss"
    assert from_record(grid.sent[2]).header["secret"] == "loss", "8 has told no key"
    messenger.send({7: MESSAGE}, "query", 9.0)
    assert from_record(grid.sent[3]).header["secret"], "a machine with a new key can say so"
    grid.answers = [answer_with(to_record(WireMessage({PUBLIC: "no key"}), public))]
    messenger.send({7: MESSAGE}, "query", 9.0)
    refused = messenger.collect(["id"])["id"]
    assert isinstance(refused, WireMessage)
    assert UNREADABLE in refused.header


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, GridMessenger, str]:
    """A server that machine 7 has told its key, and asked for work; the server's key."""
    monkeypatch.setattr(server_app, "Message", lambda content, _to, _kind, ttl: content)
    grid: Any = Grid()
    messenger = GridMessenger(grid, 60)
    messenger.send({7: MESSAGE}, "query", 9.0)
    public = str(from_record(grid.sent[0]).header[PUBLIC])
    grid.answers = [answer_with(to_record(WireMessage({PUBLIC: public_of(SITE)}), public))]
    assert isinstance(messenger.collect(["id"])["id"], WireMessage)
    messenger.send({7: MESSAGE}, "train", 9.0)
    return grid, messenger, public


def test_a_server_takes_work_from_the_site_alone(met: tuple[Any, GridMessenger, str]) -> None:
    grid, messenger, public = met
    grid.answers = [answer_with(to_record(MESSAGE, public, SITE))]
    found = messenger.collect(["id"])["id"]
    assert isinstance(found, WireMessage)
    assert found.header["secret"] == "loss"


def test_an_answer_to_work_must_be_sealed(met: tuple[Any, GridMessenger, str]) -> None:
    """Formerly whoever got hold of the question could answer it, unread."""
    grid, messenger, _ = met
    forged = WireMessage({**MESSAGE.header, PUBLIC: public_of(new_key())}, MESSAGE.arrays)
    grid.answers = [answer_with(to_record(forged))]
    assert messenger.collect(["id"])["id"] == "its answer must be encrypted, but is not"
    assert messenger.keys == {7: public_of(SITE)}


def test_an_answer_to_work_must_be_of_the_site(met: tuple[Any, GridMessenger, str]) -> None:
    grid, messenger, public = met
    forged = WireMessage({**MESSAGE.header, PUBLIC: public_of(new_key())}, MESSAGE.arrays)
    for sender in (None, new_key()):
        messenger.send({7: MESSAGE}, "train", 9.0)
        grid.answers = [answer_with(to_record(forged, public, sender))]
        refused = messenger.collect(["id"])["id"]
        assert isinstance(refused, WireMessage)
        assert UNREADABLE in refused.header
    assert messenger.keys == {7: public_of(SITE)}, "the next message is not for a stranger"


def test_a_site_that_cannot_answer_says_why(met: tuple[Any, GridMessenger, str]) -> None:
    """If its state is gone, it has no key to encrypt with."""
    grid, messenger, _ = met
    grid.answers = [answer_with(to_record(refusal("the ledger is missing")))]
    assert str(messenger.collect(["id"])["id"]).endswith("it says: the ledger is missing")
