"""What the server knows of the nodes' samples: how many, of which shape, and whose is which.

A sample is a row number here as everywhere; the arrays behind the numbers are stand-ins that
take no memory and hold no values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import Arrays, ClientData, FederatedData, Samples
from sofa_fl.deploy.transport.wire import GarbageError, Parcel

Look = tuple[str, tuple[int, ...]]  # the type and the shape of an input or a target


@dataclass(frozen=True, slots=True)
class Kind:
    """What samples look like; the same on all nodes of a federation."""

    input: Look
    target: Look
    scale: float
    shift: float

    @property
    def is_regression(self) -> bool:
        return self.target[0].startswith("float")

    def stand_in(self, num: int) -> Arrays:
        """Arrays of so many samples that are not there."""
        x, y = (
            np.broadcast_to(np.zeros((), dtype=dtype), (num, *shape))
            for dtype, shape in (self.input, self.target)
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
            read_look(parcel.value("input", list)),
            read_look(parcel.value("target", list)),
            parcel.value("scale", float),
            parcel.value("shift", float),
        )
        ids, sums, squares = None, None, None
        if "ids" in parcel.arrays:
            ids = parcel.array("ids", "int64", (counts[0],))
        if kind.is_regression:
            size = (prod(kind.target[1]),)
            sums = parcel.array("target_sums", "float64", size)
            squares = parcel.array("target_squares", "float64", size)
        if ids is not None and (ids.min() < 0 or len(np.unique(ids)) < len(ids)):
            raise GarbageError("ids must be different and at least 0")
        return cls(
            num_train=counts[0],
            num_holdout=counts[1],
            num_test=counts[2],
            kind=kind,
            num_classes=parcel.value("num_classes", int),
            number=number,
            mark=parcel.value("mark", str)[:64],
            cap=min(1.0, max(0.0, parcel.value("cap", float))),
            ids=ids,
            target_sums=sums,
            target_squares=squares,
        )


def read_look(values: Sequence[Any]) -> Look:
    """A type and a shape, as a list of both."""
    name, *shape = values or [""]
    if name not in ("uint8", "float32", "int64"):
        raise GarbageError(f"samples cannot be of type {name!r}")
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise GarbageError(f"samples cannot have the shape {shape}")
    return str(name), tuple(shape)


@dataclass(frozen=True, slots=True)
class Described(FederatedData):
    """A federation's data as the server knows them.

    Attributes:
        marks: Of the clients that it began with: says whether a resumed run has the same.
        variance: Of all targets of a regression.
        room: How many clients there may ever be.
    """

    marks: tuple[str, ...] = ()
    variance: float = 0.0
    room: int = 0

    @property
    def first_id(self) -> int:
        return max(self.room, len(self.clients))

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
    sums = [card.target_sums for card in cards if card.target_sums is not None]
    squares = [card.target_squares for card in cards if card.target_squares is not None]
    if not sums or len(sums) != len(squares):
        return 0.0
    num = sum(card.num_train for card in cards)
    mean = np.sum(np.stack(sums), axis=0) / num
    return float(np.maximum(np.sum(np.stack(squares), axis=0) / num - mean**2, 0).mean())


def rows_of(card: Card, first: int, first_test: int) -> ClientData:
    """Row numbers for a node's samples: its own, or new ones from `first` on.

    Held-out samples are numbered from `first` on, then those to train on that have no ids.
    """
    holdout = np.arange(first, first + card.num_holdout)
    train = card.ids
    if train is None:
        train = np.arange(first + card.num_holdout, first + card.num_holdout + card.num_train)
    return ClientData(train, holdout, np.arange(first_test, first_test + card.num_test))
