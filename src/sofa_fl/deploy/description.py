"""What the server knows of the nodes' samples: how many, of which shape, and whose is which.

A sample is a row number here as everywhere; the arrays behind the numbers are stand-ins that take no
memory and hold no values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import Arrays, ClientData, FederatedData, Samples
from sofa_fl.deploy.wire import GarbageError, Parcel, typed


@dataclass(frozen=True, slots=True)
class Kind:
    """What samples look like; the same on all nodes of a federation."""

    input: tuple[str | int, ...]  # type, then shape
    target: tuple[str | int, ...]
    scale: float
    shift: float

    def stand_in(self, num: int) -> Arrays:
        """Arrays of so many samples that are not there."""
        x, y = (
            np.broadcast_to(
                np.zeros(1, dtype=str(kind)).reshape(1, *(1 for _ in shape)), (num, *shape)
            )
            for kind, *shape in (self.input, self.target)
        )
        return Arrays(x, y, self.scale, self.shift)


@dataclass(frozen=True, slots=True)
class Card:
    """What a node said of itself when it came."""

    num_train: int
    num_holdout: int
    num_test: int
    kind: Kind
    num_classes: int
    number: int | None
    mark: str
    cap: float
    ids: Samples | None = None
    target_sums: NDArray[np.float64] | None = None
    target_squares: NDArray[np.float64] | None = None

    @classmethod
    def read(cls, parcel: Parcel) -> Card:
        """A node's hello; anything else is garbage."""
        counts = [parcel.value(f"num_{name}", int) for name in ("train", "holdout", "test")]
        if min(counts) < 0 or counts[0] < 1:
            raise GarbageError(f"a node needs a sample to train on, got {counts[0]}")
        number = parcel.header.get("number")
        if number is not None and not (isinstance(number, int) and 0 <= number < 1 << 31):
            raise GarbageError(f"a client's number must be a whole number, got {number!r}")
        kind = Kind(
            _kind(parcel.value("input", list)),
            _kind(parcel.value("target", list)),
            parcel.value("scale", float),
            parcel.value("shift", float),
        )
        has_ids, is_float = "ids" in parcel.arrays, str(kind.target[0]).startswith("float")
        ids = parcel.array("ids", "int64", (counts[0],)) if has_ids else None
        if ids is not None and (ids.min() < 0 or len(np.unique(ids)) < len(ids)):
            raise GarbageError("ids must be different and at least 0")
        return cls(
            *counts,
            kind,
            parcel.value("num_classes", int),
            number,
            parcel.value("mark", str)[:64],
            min(1.0, max(0.0, parcel.value("cap", float))),
            ids,
            parcel.array("target_sums", "float64", (None,)) if is_float else None,
            parcel.array("target_squares", "float64", (None,)) if is_float else None,
        )


def _kind(values: list[object]) -> tuple[str | int, ...]:
    name, *shape = values or [""]
    if name not in ("uint8", "float32", "int64"):
        raise GarbageError(f"samples cannot be of type {name!r}")
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise GarbageError(f"samples cannot have the shape {shape}")
    return tuple(typed({"value": value}, "value", type(value)) for value in values)


@dataclass(frozen=True, slots=True)
class Described(FederatedData):
    """A federation's data as the server knows them.

    Attributes:
        marks: Of the clients that it began with: says whether a resumed run has the same.
        variance: Of all targets of a regression.
    """

    marks: tuple[str, ...] = ()
    variance: float = 0.0

    def class_counts(self, rows: Samples) -> NDArray[np.int64]:
        """Not known here: every node adds its own mix."""
        return np.zeros(self.num_outputs, dtype=np.int64)

    @property
    def target_variance(self) -> float:
        return self.variance

    def digest(self) -> str:
        return hashlib.blake2b(" ".join(self.marks).encode(), digest_size=16).hexdigest()


def variance_of(cards: Sequence[Card]) -> float:
    """Of all targets together, from the sums of each node."""
    if any(card.target_sums is None or card.target_squares is None for card in cards):
        return 0.0
    num = sum(card.num_train for card in cards)
    sums = np.sum([card.target_sums for card in cards], axis=0) / num
    squares = np.sum([card.target_squares for card in cards], axis=0) / num
    return float(np.maximum(squares - sums**2, 0).mean())


def rows_of(card: Card, first: int, first_test: int) -> ClientData:
    """Row numbers for a node's samples: its own, or new ones from `first` on.

    Held-out samples are numbered from `first` on, then those to train on that have no ids.
    """
    holdout = np.arange(first, first + card.num_holdout)
    train = card.ids
    if train is None:
        train = np.arange(first + card.num_holdout, first + card.num_holdout + card.num_train)
    return ClientData(train, holdout, np.arange(first_test, first_test + card.num_test))
