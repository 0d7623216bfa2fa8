"""What a machine says of its samples when it joins: how many, of which type and shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import Arrays, Samples
from sofa_fl.deploy.transport.wire_message import MessageError, WireMessage

COUNTS = ("num_train", "num_holdout", "num_test", "num_classes")
ARRAYS = {"ids": "int64", "target_sums": "float64", "target_squares": "float64"}
ArrayFormat = tuple[str, tuple[int, ...]]  # the type and the shape of an input or a target


@dataclass(frozen=True, slots=True)
class SampleFormat:
    """What samples look like; the same on all machines of a federation."""

    input: ArrayFormat
    target: ArrayFormat
    scale: float
    shift: float

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
        fingerprint: A hash of its samples, by which it is recognized.
        cap: Fraction of its training samples that it ever discloses.
        ids: Rows of its training samples, if it brings its own.
        target_sums, target_squares: Of the targets of a regression.
    """

    num_train: int
    num_holdout: int
    num_test: int
    num_classes: int
    format: SampleFormat
    number: int | None
    fingerprint: str
    cap: float
    ids: Samples | None = None
    target_sums: NDArray[np.float64] | None = None
    target_squares: NDArray[np.float64] | None = None

    def header(self) -> dict[str, Any]:
        """The plain values, as a message or a file holds them; `arrays` has the rest."""
        plain = {name: getattr(self, name) for name in (*COUNTS, "number", "fingerprint", "cap")}
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
                f"a machine must have at least one sample to train on, and no number below 0, got "
                f"{counts}"
            )
        number = message.header.get("number")
        if number is not None and not (isinstance(number, int) and 0 <= number < 1 << 31):
            raise MessageError(f"a client's number must be a whole number, got {number!r}")
        format = SampleFormat(
            _array_format(message.value("input", list)),
            _array_format(message.value("target", list)),
            message.value("scale", float),
            message.value("shift", float),
        )
        shapes = {"ids": (counts["num_train"],)} if "ids" in message.arrays else {}
        if format.is_regression:
            shapes |= dict.fromkeys(("target_sums", "target_squares"), (prod(format.target[1]),))
        arrays: dict[str, Any] = {
            name: message.array(name, ARRAYS[name], shape) for name, shape in shapes.items()
        }
        ids = arrays.get("ids")
        if ids is not None and (ids.min() < 0 or len(np.unique(ids)) < len(ids)):
            raise MessageError("ids must be distinct and at least 0")
        return cls(
            **counts,
            format=format,
            number=number,
            fingerprint=message.value("fingerprint", str)[:64],
            cap=min(1.0, max(0.0, message.value("cap", float))),
            **arrays,
        )


def _array_format(values: Sequence[Any]) -> ArrayFormat:
    name, *shape = values or [""]
    if name not in ("uint8", "float32", "int64"):
        raise MessageError(f"samples must be uint8, float32 or int64, got {name!r}")
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise MessageError(f"the shape of a sample must be whole numbers, got {shape}")
    return str(name), tuple(shape)


def pooled_variance(profiles: Sequence[MachineProfile]) -> float:
    """The variance of all targets together, from the sums of each machine."""
    sums = [profile.target_sums for profile in profiles if profile.target_sums is not None]
    squares = [p.target_squares for p in profiles if p.target_squares is not None]
    if not sums or len(sums) != len(squares):
        return 0.0
    num = sum(profile.num_train for profile in profiles)
    mean = np.sum(np.stack(sums), axis=0) / num
    return float(np.maximum(np.sum(np.stack(squares), axis=0) / num - mean**2, 0).mean())
