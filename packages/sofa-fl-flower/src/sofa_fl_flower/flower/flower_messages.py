"""Our messages as Flower's records, encrypted between the server's process and machines.

TLS ends at the SuperLink, which keeps messages in its database. So that no model and no sample lies
there readably, a message is encrypted for its receiver: X25519, HKDF, ChaCha20-Poly1305. The
server's key lives in its process and dies with it; a machine's is derived from its site's key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from sofa_fl_flower.transport.message_checks import MessageError, shown
from sofa_fl_flower.transport.wire_message import ARRAY_TYPES, WireMessage

PUBLIC = "public"  # the header's key for the key to encrypt answers with
KEY_SIZE = 32
_NONCE = bytes(12)  # no key is used twice
RAW = "sofa-fl.raw"  # bytes as they lie in memory, little-endian
LENGTH_SIZE = 8  # bytes of a number
MAX_DIMENSIONS = 10
MAX_INLINE = 1 << 26  # bytes that go along with the header; Flower cuts more into pieces


def new_key() -> X25519PrivateKey:
    return X25519PrivateKey.generate()


def sealing_key_of(secret: bytes) -> X25519PrivateKey:
    """The key of a site, of its secret."""
    derived = HKDF(SHA256(), KEY_SIZE, salt=None, info=b"sofa-fl seal").derive(secret)
    return X25519PrivateKey.from_private_bytes(derived)


def seal(content: bytes, public: str, sender: X25519PrivateKey | None = None) -> bytes:
    """Encrypt for whoever has the private key of `public`; with `sender`, prove who it is from."""
    own = new_key()
    try:
        receiver = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
        shared = own.exchange(receiver) + (sender.exchange(receiver) if sender else b"")
    except (TypeError, ValueError):
        raise MessageError(
            "a public key must be a curve point of 32 bytes, in hexadecimal"
        ) from None
    first = own.public_key().public_bytes_raw()
    return first + _cipher(shared, first, bytes.fromhex(public)).encrypt(_NONCE, content, None)


def unseal(content: bytes, key: X25519PrivateKey, sender: str | None = None) -> bytes:
    """Decrypt what `seal` returned; raise `MessageError` for anything else.

    With `sender`, a public key, only what was sealed with its private key can be read.
    """
    first = content[:KEY_SIZE]
    known = [first] if sender is None else [first, bytes.fromhex(sender)]
    try:
        shared = b"".join(key.exchange(X25519PublicKey.from_public_bytes(p)) for p in known)
        cipher = _cipher(shared, first, key.public_key().public_bytes_raw())
        return cipher.decrypt(_NONCE, content[KEY_SIZE:], None)
    except (InvalidTag, ValueError):
        raise MessageError("a message was encrypted with another key, or was altered") from None


def _cipher(shared: bytes, sender: bytes, receiver: bytes) -> ChaCha20Poly1305:
    info = b"sofa-fl message" + sender + receiver
    return ChaCha20Poly1305(HKDF(SHA256(), KEY_SIZE, salt=None, info=info).derive(shared))


def to_record(
    message: WireMessage, public: str | None = None, sender: X25519PrivateKey | None = None
) -> RecordDict:
    """Convert a message: its header as JSON, all arrays as one run of bytes; no pickle.

    One run, since Flower sends each array in requests of its own, and requests are what a round
    costs: even so a message and its answer take 18. With `public`, the key of its receiver, all of
    it is encrypted; with `sender`, nobody else can have done that.
    """
    shapes = [(name, str(a.dtype), a.shape) for name, a in message.arrays.items()]
    data = b"".join(_bytes(array) for array in message.arrays.values())
    text = json.dumps({"header": message.header, "arrays": shapes})
    header = ConfigRecord({"json": text})
    if public is not None:
        plain = text.encode()
        data = seal(len(plain).to_bytes(LENGTH_SIZE, "little") + plain + data, public, sender)
        header = ConfigRecord({"sealed": True})
    if len(data) <= MAX_INLINE:
        header["data"] = data
        return RecordDict({"sofa": header})
    array = Array(dtype="uint8", shape=(len(data),), stype=RAW, data=data)
    return RecordDict({"sofa": header, "data": ArrayRecord({"data": array})})


def from_record(
    record: RecordDict, key: X25519PrivateKey | None = None, sender: str | None = None
) -> WireMessage:
    """Convert back what `to_record` returned; raise `MessageError` for anything else.

    With `sender`, a public key, it must have been encrypted with the private one.
    """
    try:
        header = record.config_records["sofa"]
        large = record.array_records.get("data")
        data = header["data"] if large is None else large["data"].data
        if not isinstance(data, bytes):
            raise TypeError("bytes are needed")
        if is_sealed(record):
            if key is None:
                raise MessageError("the message is encrypted, but there is no key to read it with")
            text, data = _parts(unseal(data, key, sender))
        elif sender is not None:
            raise MessageError("the message must be encrypted, but is not")
        else:
            text = str(header["json"]).encode()
        content = json.loads(text)
        if not isinstance(content["header"], dict):
            raise TypeError("a header is needed")
        return WireMessage(content["header"], _arrays(data, content["arrays"]))
    # JSON may be nested too deep, a number too large: whatever is wrong, it is the sender's.
    except Exception as error:
        raise MessageError(f"a message cannot be read: {shown(repr(error))}") from None


def is_sealed(record: RecordDict) -> bool:
    """Whether a message is encrypted."""
    header = record.config_records.get("sofa")
    return header is not None and header.get("sealed") is True


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
