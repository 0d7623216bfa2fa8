"""Parcels as Flower's messages and back, and what is no parcel."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from sofa_fl.deploy.grid import RAW, SMALL, from_record, to_record
from sofa_fl.deploy.wire import GarbageError, Parcel


@pytest.mark.parametrize("size", [3, SMALL])
def test_a_parcel_comes_out_as_it_went_in(size: int) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "a": np.arange(size, dtype=np.float32),
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
