"""Flower as the carrier: parcels as its messages, and its grid as our post."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from sofa_fl.deploy.flower.flower_patches import hasten
from sofa_fl.deploy.transport.wire import KINDS, GarbageError, Parcel

RAW = "sofa-fl.raw"  # bytes as they lie in memory, little-endian
SMALL = 1 << 26  # bytes that go along with the header; larger ones Flower cuts into pieces


def to_record(parcel: Parcel) -> RecordDict:
    """A parcel as what Flower sends: a text, and all arrays as one row of bytes; no pickle.

    One row, since Flower carries every array in requests of its own, and these are what a round
    costs: as it is, 18 of them there and back.
    """
    shapes = [(name, str(a.dtype), a.shape) for name, a in parcel.arrays.items()]
    data = b"".join(_bytes(array) for array in parcel.arrays.values())
    header = ConfigRecord({"json": json.dumps({"header": parcel.header, "arrays": shapes})})
    if len(data) <= SMALL:
        header["data"] = data
        return RecordDict({"sofa": header})
    array = Array(dtype="uint8", shape=(len(data),), stype=RAW, data=data)
    return RecordDict({"sofa": header, "data": ArrayRecord({"data": array})})


def from_record(record: RecordDict) -> Parcel:
    """The parcel that `to_record` packed; anything else is garbage."""
    try:
        header = record.config_records["sofa"]
        read = json.loads(str(header["json"]))
        big = record.array_records.get("data")
        data = header["data"] if big is None else big["data"].data
        if not isinstance(data, bytes) or not isinstance(read["header"], dict):
            raise TypeError("a header and bytes are needed")
        return Parcel(read["header"], _cut(data, read["arrays"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GarbageError(f"a message cannot be read: {error!r}") from None


def _bytes(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _cut(data: bytes, shapes: list[Any]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    at = 0
    for name, dtype, shape in shapes:
        if dtype not in KINDS or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise ValueError(f"arrays of {dtype} and shape {shape}")
        kind = np.dtype(dtype).newbyteorder("<")
        read = np.frombuffer(data, dtype=kind, count=prod(shape), offset=at).reshape(shape)
        arrays[str(name)] = read.astype(dtype, copy=False)
        at += read.nbytes
    if at != len(data):
        raise ValueError(f"{len(data)} bytes, {at} of them in arrays")
    return arrays


def batches(parcels: Mapping[int, Parcel], most: int = SMALL) -> Iterator[dict[int, Parcel]]:
    """Parcels of so many bytes together, or single ones; all of them, in their order."""
    batch: dict[int, Parcel] = {}
    size = 0
    for node, parcel in parcels.items():
        if batch and size + parcel.nbytes > most:
            yield batch
            batch, size = {}, 0
        batch[node] = parcel
        size += parcel.nbytes
    if batch:
        yield batch


class GridPost:
    """Flower's grid, without its pauses of three seconds."""

    def __init__(self, grid: Grid) -> None:
        hasten()
        self.grid = grid

    def nodes(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def send(self, parcels: Mapping[int, Parcel], kind: str, seconds: float) -> dict[int, str]:
        """Some at a time: one request announces them, and their parts travel side by side."""
        sent: dict[int, str] = {}
        for batch in batches(parcels):
            messages = [
                Message(to_record(parcel), node, kind, ttl=seconds)
                for node, parcel in batch.items()
            ]
            letters = self.grid.push_messages(messages)
            sent |= {node: letter for node, letter in zip(batch, letters) if letter}
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
