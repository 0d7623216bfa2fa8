"""Messages as Flower's records and back, and records that are no message."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from sofa_fl_flower.flower import flower_messages, server_app
from sofa_fl_flower.flower.flower_messages import (
    MAX_INLINE,
    RAW,
    from_record,
    in_batches,
    to_record,
)
from sofa_fl_flower.flower.server_app import GridMessenger
from sofa_fl_flower.transport.message_checks import MessageError
from sofa_fl_flower.transport.wire_message import WireMessage


@pytest.mark.parametrize("limit", [MAX_INLINE, 8])
def test_a_message_comes_out_as_it_went_in(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_messages, "MAX_INLINE", limit)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "a": np.arange(3, dtype=np.float32),
        "b": np.arange(6, dtype=np.uint8).reshape(1, 2, 3)[:, ::-1],
        "none": np.empty((0, 4), dtype=np.int64),
        "half": np.array([1.5], dtype=np.float16),
    }
    found = from_record(to_record(WireMessage({"x": [1, "two", None]}, arrays)))
    assert found.header == {"x": [1, "two", None]}
    assert list(found.arrays) == list(arrays)
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert np.array_equal(found.arrays[name], array)


def record(text: Any, data: Any = b"") -> RecordDict:
    return RecordDict({"sofa": ConfigRecord({"json": text, "data": data})})


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        record("{"),
        record("[]"),
        record(json.dumps({"header": 1, "arrays": []})),
        record(json.dumps({"header": {}, "arrays": [["a", "object", [1]]]}), b"12345678"),
        record(json.dumps({"header": {}, "arrays": [["a", "float32", [-1]]]}), b"1234"),
        record(json.dumps({"header": {}, "arrays": [["a", "float32", [2]]]}), b"1234"),
        record(json.dumps({"header": {}, "arrays": [["a", "float32", [1]]]}), b"12345678"),
        record(json.dumps({"header": {}, "arrays": [["a", "float32", "x"]]}), b"1234"),
        record(json.dumps({"header": {}, "arrays": 3}), b"1234"),
        record(json.dumps({"header": {}, "arrays": []}), "text"),
        RecordDict({"sofa": ArrayRecord({"a": Array("uint8", (1,), RAW, b"1")})}),
    ],
)
def test_any_other_record_is_refused(content: RecordDict) -> None:
    with pytest.raises(MessageError):
        from_record(content)


def message(num: int) -> WireMessage:
    return WireMessage({}, {"a": np.zeros(num, dtype=np.uint8)})


def test_small_messages_go_together() -> None:
    sizes = {1: 4, 2: 5, 3: 2, 4: 99, 5: 1, 6: 9}
    found = list(in_batches({one: message(size) for one, size in sizes.items()}, 10))
    assert [list(batch) for batch in found] == [[1, 2], [3], [4], [5, 6]]
    assert list(in_batches({})) == []


def test_a_message_that_was_not_accepted_has_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    flower = MagicMock()
    monkeypatch.setattr(server_app, "Message", lambda _content, machine, _kind, ttl: machine)
    flower.push_messages.side_effect = lambda messages: [
        None if machine == 2 else f"to {machine}" for machine in messages
    ]
    sent = GridMessenger(flower, 60).send(
        {machine: message(1) for machine in (1, 2, 3)}, "train", 60
    )
    assert sent == {1: "to 1", 3: "to 3"}
    flower.push_messages.side_effect = lambda messages: []  # too large for the SuperLink
    assert GridMessenger(flower, 60).send({1: message(1)}, "train", 60) == {}
