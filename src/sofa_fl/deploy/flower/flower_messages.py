"""Our messages as Flower's records, and Flower's grid as our messenger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from sofa_fl.deploy.flower.flower_patches import (
    limit_waits,
    shorten_retries,
    survive_broken_answers,
)
from sofa_fl.deploy.flower.sealing import PUBLIC, new_key, public_of, seal, unseal
from sofa_fl.deploy.server.exchange import Answer
from sofa_fl.deploy.transport.message_checks import MessageError, shown
from sofa_fl.deploy.transport.wire_message import ARRAY_TYPES, UNREADABLE, WireMessage

RAW = "sofa-fl.raw"  # bytes as they lie in memory, little-endian
LENGTH_SIZE = 8  # bytes of a number
MAX_DIMENSIONS = 10
MAX_INLINE = 1 << 26  # bytes that go along with the header; Flower cuts more into pieces


def to_record(message: WireMessage, public: str | None = None) -> RecordDict:
    """Convert a message: its header as JSON, all arrays as one run of bytes; no pickle.

    One run, since Flower sends each array in requests of its own, and requests are what a round
    costs: even so a message and its answer take 18. With `public`, the key of its receiver, all of
    it is encrypted.
    """
    shapes = [(name, str(a.dtype), a.shape) for name, a in message.arrays.items()]
    data = b"".join(_bytes(array) for array in message.arrays.values())
    text = json.dumps({"header": message.header, "arrays": shapes})
    header = ConfigRecord({"json": text})
    if public is not None:
        plain = text.encode()
        data = seal(len(plain).to_bytes(LENGTH_SIZE, "little") + plain + data, public)
        header = ConfigRecord({"sealed": True})
    if len(data) <= MAX_INLINE:
        header["data"] = data
        return RecordDict({"sofa": header})
    array = Array(dtype="uint8", shape=(len(data),), stype=RAW, data=data)
    return RecordDict({"sofa": header, "data": ArrayRecord({"data": array})})


def from_record(record: RecordDict, key: X25519PrivateKey | None = None) -> WireMessage:
    """Convert back what `to_record` returned; raise `MessageError` for anything else."""
    try:
        header = record.config_records["sofa"]
        large = record.array_records.get("data")
        data = header["data"] if large is None else large["data"].data
        if not isinstance(data, bytes):
            raise TypeError("bytes are needed")
        if header.get("sealed") is True:
            if key is None:
                raise MessageError("it is encrypted, and there is no key to read it with")
            text, data = _parts(unseal(data, key))
        else:
            text = str(header["json"]).encode()
        content = json.loads(text)
        if not isinstance(content["header"], dict):
            raise TypeError("a header is needed")
        return WireMessage(content["header"], _arrays(data, content["arrays"]))
    # JSON may be nested too deep, a number too large: whatever is wrong, it is the sender's.
    except Exception as error:
        raise MessageError(f"a message cannot be read: {shown(repr(error))}") from None


def _parts(content: bytes) -> tuple[bytes, bytes]:
    """The header and the arrays of a message that was encrypted."""
    end = LENGTH_SIZE + int.from_bytes(content[:LENGTH_SIZE], "little")
    return content[LENGTH_SIZE:end], content[end:]


def _bytes(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _arrays(data: bytes, shapes: list[Any]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    offset = 0
    for name, dtype, shape in shapes:
        if dtype not in ARRAY_TYPES or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("an array must be of a known type and shape")
        little = np.dtype(dtype).newbyteorder("<")
        if len(shape) > MAX_DIMENSIONS or prod(shape) * little.itemsize > len(data) - offset:
            raise ValueError("an array must not be larger than the message")
        array = np.frombuffer(data, little, count=prod(shape), offset=offset).reshape(shape)
        arrays[str(name)] = array.astype(dtype, copy=False)
        offset += array.nbytes
    if offset != len(data):
        raise ValueError(f"the arrays need {offset} bytes, got {len(data)}")
    return arrays


def in_batches(
    messages: Mapping[int, WireMessage], max_bytes: int = MAX_INLINE
) -> Iterator[dict[int, WireMessage]]:
    """Group messages, in order, into batches of at most `max_bytes`, or of a single message."""
    batch: dict[int, WireMessage] = {}
    size = 0
    for machine, message in messages.items():
        if batch and size + message.nbytes > max_bytes:
            yield batch
            batch, size = {}, 0
        batch[machine] = message
        size += message.nbytes
    if batch:
        yield batch


class GridMessenger:
    """Sends messages over Flower's grid, without its pauses of three seconds.

    They are encrypted for every machine that has told its key, as all do with their first answer.
    The parts of an answer may take `timeout` seconds to arrive once it is announced.
    """

    def __init__(self, grid: Grid, timeout: float) -> None:
        shorten_retries()
        limit_waits(timeout)
        survive_broken_answers()
        self.grid = grid
        self.key = new_key()
        self.keys: dict[int, str] = {}  # of machines
        self._sent: dict[str, int] = {}  # the machine of each message that is not answered

    def machines(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def send(
        self, messages: Mapping[int, WireMessage], kind: str, seconds: float
    ) -> dict[int, str]:
        """Send in batches: one request announces a batch, and its parts travel in parallel."""
        sent: dict[int, str] = {}
        for batch in in_batches(messages):
            flower_messages = [
                Message(self._record_for(machine, message, kind), machine, kind, ttl=seconds)
                for machine, message in batch.items()
            ]
            ids = self.grid.push_messages(flower_messages)
            sent |= {machine: id for machine, id in zip(batch, ids) if id}
        self._sent |= {id: machine for machine, id in sent.items()}
        return sent

    def _record_for(self, machine: int, message: WireMessage, kind: str) -> RecordDict:
        header = {**message.header, PUBLIC: public_of(self.key)}
        # A hello holds no secret, and asks for the key, which may be new.
        public = self.keys.get(machine) if kind != "query" else None
        return to_record(WireMessage(header, message.arrays), public)

    def collect(self, ids: Iterable[str]) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        for message in self.grid.pull_messages(list(ids)):
            id = message.metadata.reply_to_message_id
            # Who has answered is known by what was asked; what an answer says of it may be forged.
            machine = self._sent.pop(id, None)
            if machine is None:
                continue
            if message.has_error():
                answers[id] = f"{message.error.code}: {message.error.reason}"
                continue
            try:
                answer = from_record(message.content, self.key)
                if (public := answer.header.get(PUBLIC)) is not None:
                    seal(b"", str(public))  # whether it is a key
                    self.keys[machine] = str(public)
                answers[id] = answer
            except MessageError as error:
                answers[id] = WireMessage({UNREADABLE: str(error)})
        return answers
