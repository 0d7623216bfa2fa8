"""What a machine says of its samples when it joins: how many, of which type and shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Arrays, Samples
from sofa_fl.errors import ConfigError
from sofa_fl_flower.masked_sum.plan import is_key
from sofa_fl_flower.transport.message_checks import MAX_TEXT, MessageError, flaw_of_name, shown
from sofa_fl_flower.transport.wire_message import WireMessage

COUNTS = ("num_train", "num_holdout", "num_test", "num_classes")
TEXTS = ("name", "identity", "fingerprint", "sum_key")
MAX_SAMPLES = 1 << 24  # of one machine, and the first row number that it cannot bring
MAX_INPUT = 1 << 26  # numbers of one sample
MAX_DIMENSIONS = 8
ARRAYS = {"ids": "int64", "target_sums": "float64", "target_squares": "float64"}
ArrayFormat = tuple[str, tuple[int, ...]]  # the type and the shape of an input or a target


@dataclass(frozen=True, slots=True)
class SampleFormat:
    """What samples look like; the same on all machines of a federation."""

    input: ArrayFormat
    target: ArrayFormat
    scale: float = 1.0
    shift: float = 0.0

    @property
    def is_regression(self) -> bool:
        return self.target[0].startswith("float")

    def placeholder(self, num: int) -> Arrays:
        """Arrays for `num` samples that hold no values and take no memory."""
        x, y = (
            np.broadcast_to(np.zeros((), dtype=dtype), (num, *shape))
            for dtype, shape in (self.input, self.target)
        )
        return Arrays(x, y, self.scale, self.shift)


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """What a machine says of itself.

    Attributes:
        number: The client that it asks to be.
        name: What its client is called, if it says so.
        identity: What it is recognized by: only who has the site's key can know it.
        fingerprint: A keyed hash of its samples, which tells whether they have changed.
        cap: Fraction of its training samples that it ever discloses.
        receives: Whether it trains on samples of others.
        sum_key: Its public key for sums of secure aggregation; empty: it tells none.
        smallest_cluster: The smallest number of members of a sum that it takes part in.
        ids: Rows of its training samples, if it brings its own.
        target_sums, target_squares: Of the targets of a regression.
    """

    num_train: int
    num_holdout: int
    num_test: int
    num_classes: int
    format: SampleFormat
    number: int | None
    identity: str
    fingerprint: str
    cap: float
    receives: bool = True
    name: str = ""
    sum_key: str = ""
    smallest_cluster: int = 0
    ids: Samples | None = None
    target_sums: NDArray[np.float64] | None = None
    target_squares: NDArray[np.float64] | None = None

    def header(self) -> dict[str, Any]:
        """The plain values, as a message or a file holds them; `arrays` has the rest."""
        plain = {
            name: getattr(self, name)
            for name in (*COUNTS, *TEXTS, "number", "cap", "receives", "smallest_cluster")
        }
        format = self.format
        return {
            **plain,
            "input": [format.input[0], *format.input[1]],
            "target": [format.target[0], *format.target[1]],
            "scale": format.scale,
            "shift": format.shift,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        found = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in found.items() if array is not None}

    @classmethod
    def read(cls, message: WireMessage) -> MachineProfile:
        """Read a profile from what `header` and `arrays` returned."""
        counts = {name: message.value(name, int) for name in COUNTS}
        if counts["num_train"] < 1 or min(counts.values()) < 0:
            raise MessageError(
                "a machine must have at least one training sample, and no negative counts, got "
                f"{shown(counts)}"
            )
        if max(counts.values()) > MAX_SAMPLES:
            raise MessageError(
                f"a machine may have at most {MAX_SAMPLES} samples, got {shown(counts)}"
            )
        number = message.header.get("number")
        if number is not None and not (type(number) is int and 0 <= number < 1 << 31):
            raise MessageError(
                f"a client's number must be a whole number, got {shown(repr(number))}"
            )
        name = message.header.get("name", "")
        if (flaw := flaw_of_name(name)) is not None:
            raise MessageError(flaw)
        sum_key = message.header.get("sum_key", "")
        smallest = message.header.get("smallest_cluster", 0)
        if sum_key != "" and not is_key(sum_key):
            raise MessageError(f"a key for sums must be 32 bytes, got {shown(repr(sum_key))}")
        if type(smallest) is not int or not 0 <= smallest <= MAX_SAMPLES:
            raise MessageError(f"smallest_cluster must be a number, got {shown(repr(smallest))}")
        receives = message.header.get("receives", True)
        if not isinstance(receives, bool):
            raise MessageError(f"receives must be true or false, got {shown(repr(receives))}")
        format = SampleFormat(
            _array_format(message.value("input", list)),
            _array_format(message.value("target", list)),
            _finite(message, "scale"),
            _finite(message, "shift"),
        )
        shapes = {"ids": (counts["num_train"],)} if "ids" in message.arrays else {}
        if format.is_regression:
            shapes |= dict.fromkeys(("target_sums", "target_squares"), (prod(format.target[1]),))
        arrays: dict[str, Any] = {
            name: message.array(name, ARRAYS[name], shape) for name, shape in shapes.items()
        }
        ids = arrays.get("ids")
        if ids is not None and (
            not 0 <= ids.min() <= ids.max() < MAX_SAMPLES or len(np.unique(ids)) < len(ids)
        ):
            raise MessageError(f"ids must be distinct, and from 0 to {MAX_SAMPLES - 1}")
        for name in shapes.keys() - {"ids"}:
            if not np.isfinite(arrays[name]).all():
                raise MessageError(f"{name} must be finite numbers")
        return cls(
            **counts,
            format=format,
            number=number,
            name=name,
            sum_key=sum_key,
            smallest_cluster=smallest,
            identity=_text(message, "identity"),
            fingerprint=_text(message, "fingerprint"),
            cap=min(1.0, max(0.0, _finite(message, "cap"))),
            receives=receives,
            **arrays,
        )


def _array_format(values: Sequence[Any]) -> ArrayFormat:
    name, *shape = values or [""]
    if name not in ("uint8", "float32", "int64"):
        raise MessageError(f"samples must be uint8, float32 or int64, got {shown(repr(name))}")
    if (
        len(shape) > MAX_DIMENSIONS
        or not all(type(size) is int and 0 <= size <= MAX_INPUT for size in shape)
        or prod(shape) > MAX_INPUT
    ):
        raise MessageError(
            f"the shape of a sample must be at most {MAX_DIMENSIONS} whole numbers, with a product "
            f"of at most {MAX_INPUT}, got {shown(shape)}"
        )
    return str(name), tuple(shape)


def _finite(message: WireMessage, name: str) -> float:
    value: float = message.value(name, float)
    if not isfinite(value):
        raise MessageError(f"{name} must be finite, got {value}")
    return value


def _text(message: WireMessage, name: str) -> str:
    """A hash: a text that is short, and not empty."""
    value: str = message.value(name, str)
    if not 1 <= len(value) <= MAX_TEXT or not value.isascii() or not value.isprintable():
        raise MessageError(f"{name} must be 1 to {MAX_TEXT} characters, got {shown(repr(value))}")
    return value


def parse_format(text: str) -> ArrayFormat:
    """Read a type and a shape from a configuration, such as `uint8 1 28 28`."""
    name, *shape = text.split() or [""]
    try:
        return _array_format([name, *map(int, shape)])
    except ValueError:
        raise ConfigError(
            "samples must be described by a type and a shape, such as 'uint8 1 28 28', got "
            f"{text!r}"
        ) from None


def pooled_variance(profiles: Sequence[MachineProfile]) -> float:
    """The variance of all targets together, from the sums of each machine."""
    sums = [profile.target_sums for profile in profiles if profile.target_sums is not None]
    squares = [p.target_squares for p in profiles if p.target_squares is not None]
    if not sums or len(sums) != len(squares):
        return 0.0
    num = sum(profile.num_train for profile in profiles)
    mean = np.sum(np.stack(sums), axis=0) / num
    return float(np.maximum(np.sum(np.stack(squares), axis=0) / num - mean**2, 0).mean())
