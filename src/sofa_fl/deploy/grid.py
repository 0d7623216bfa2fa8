"""Flower as the carrier: parcels as its messages, and its grid as our post."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from sofa_fl.deploy.wire import KINDS, GarbageError, Parcel

RAW = "sofa-fl.raw"  # an array's bytes as they lie in memory, little-endian


def to_record(parcel: Parcel) -> RecordDict:
    """A parcel as what Flower sends: one text, and arrays as their bytes; no pickle."""
    arrays = {
        name: Array(dtype=str(array.dtype), shape=array.shape, stype=RAW, data=_bytes(array))
        for name, array in parcel.arrays.items()
    }
    header = ConfigRecord({"json": json.dumps(dict(parcel.header))})
    return RecordDict({"header": header, "arrays": ArrayRecord(arrays)})


def from_record(record: RecordDict) -> Parcel:
    """The parcel that `to_record` packed; anything else is garbage."""
    try:
        header = json.loads(str(record["header"]["json"]))
        arrays = {name: _array(array) for name, array in record["arrays"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GarbageError(f"a message cannot be read: {error!r}") from None
    if not isinstance(header, dict):
        raise GarbageError("the header of a message must have names and values")
    return Parcel(header, arrays)


def _bytes(array: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _array(array: Array) -> np.ndarray[Any, Any]:
    if array.stype != RAW or array.dtype not in KINDS:
        raise ValueError(f"arrays of {array.dtype} as {array.stype}")
    kind = np.dtype(array.dtype).newbyteorder("<")
    if min(array.shape, default=0) < 0 or prod(array.shape) * kind.itemsize != len(array.data):
        raise ValueError(f"{len(array.data)} bytes are no {array.dtype} of {array.shape}")
    read = np.frombuffer(array.data, dtype=kind).reshape(array.shape)
    return read.astype(array.dtype, copy=False)


class GridPost:
    """Flower's grid, without its pauses of three seconds."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def nodes(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def send(self, parcels: Mapping[int, Parcel], kind: str, seconds: float) -> dict[int, str]:
        sent = {}
        for node, parcel in parcels.items():  # one by one: a request holds no more than one model
            message = Message(to_record(parcel), node, kind, ttl=seconds)
            letter, *_ = [*self.grid.push_messages([message]), None]
            if letter:
                sent[node] = letter
        return sent

    def collect(self, letters: Iterable[str]) -> dict[str, Parcel | str]:
        found: dict[str, Parcel | str] = {}
        for message in self.grid.pull_messages(list(letters)):
            letter = message.metadata.reply_to_message_id
            if message.has_error():
                found[letter] = f"{message.error.code}: {message.error.reason}"
                continue
            try:
                found[letter] = from_record(message.content)
            except GarbageError as error:
                found[letter] = Parcel({"garbage": str(error)})
        return found
