"""Parcels as Flower's messages and back, and what is no parcel."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from sofa_fl.deploy.flower import flower_messages as grid
from sofa_fl.deploy.flower.flower_messages import (
    RAW,
    SMALL,
    GridPost,
    batches,
    from_record,
    to_record,
)
from sofa_fl.deploy.transport.wire import GarbageError, Parcel


@pytest.mark.parametrize("small", [SMALL, 8])
def test_a_parcel_comes_out_as_it_went_in(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "SMALL", small)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "a": np.arange(3, dtype=np.float32),
        "b": np.arange(6, dtype=np.uint8).reshape(1, 2, 3)[:, ::-1],
        "none": np.empty((0, 4), dtype=np.int64),
        "half": np.array([1.5], dtype=np.float16),
    }
    found = from_record(to_record(Parcel({"x": [1, "two", None]}, arrays)))
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
def test_anything_else_is_garbage(content: RecordDict) -> None:
    with pytest.raises(GarbageError):
        from_record(content)


def parcel(num: int) -> Parcel:
    return Parcel({}, {"a": np.zeros(num, dtype=np.uint8)})


def test_parcels_go_together_as_far_as_they_are_small() -> None:
    sizes = {1: 4, 2: 5, 3: 2, 4: 99, 5: 1, 6: 9}
    found = list(batches({node: parcel(size) for node, size in sizes.items()}, most=10))
    assert [list(batch) for batch in found] == [[1, 2], [3], [4], [5, 6]]
    assert list(batches({})) == []


def test_a_message_that_was_not_taken_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    flower = MagicMock()
    monkeypatch.setattr(grid, "Message", lambda _content, node, _kind, ttl: node)
    flower.push_messages.side_effect = lambda messages: [
        None if node == 2 else f"to {node}" for node in messages
    ]
    sent = GridPost(flower).send({node: parcel(1) for node in (1, 2, 3)}, "train", 60)
    assert sent == {1: "to 1", 3: "to 3"}
    flower.push_messages.side_effect = lambda messages: []  # too large for the SuperLink
    assert GridPost(flower).send({1: parcel(1)}, "train", 60) == {}
