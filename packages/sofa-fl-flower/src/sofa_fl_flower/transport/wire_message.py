"""A message between server and machine: a header of plain values, and arrays as bytes; no pickle.

Reading checks every type and shape, since the sender may be broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.models.flat import IdentityDict, Model, Vector, as_vector
from sofa_fl_flower.transport.message_checks import (
    MessageError,
    RefusalError,
    checked_value,
    shown,
)

VERSION = 6  # of the content of messages; both sides must have the same
ModelType = Literal["float32", "float16"]  # in which models travel
ARRAY_TYPES = ("float32", "float16", "float64", "uint8", "uint32", "int32", "int64")
ModelName = str | list[list[Any]]  # an array's name; for a mix, pairs of such a name and a weight
UNREADABLE = "unreadable"  # the header's key for what was wrong with the bytes of a message
REFUSED = "refused"  # the header's key for why a machine declined
KINDS = ("tasks", "exams", "embeds", "unmask")


def refusal(why: str) -> WireMessage:
    """The answer of a machine that declines."""
    return WireMessage({"version": VERSION, REFUSED: why})


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message, in either direction."""

    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def check_version(self) -> None:
        """Raise if it could not be read, is a refusal, or is of another version of sofa-fl."""
        if UNREADABLE in self.header:
            raise MessageError(shown(self.header[UNREADABLE]))
        if (found := self.header.get("version")) != VERSION:
            raise MessageError(
                f"messages must be of version {VERSION}, got {shown(repr(found))}; install the "
                "same sofa-fl on all machines"
            )
        if REFUSED in self.header:
            raise RefusalError(f"it declined: {shown(self.header[REFUSED])}")

    @property
    def nbytes(self) -> int:
        """The size of the arrays; a header is small beside them."""
        return sum(array.nbytes for array in self.arrays.values())

    def array(self, name: Any, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """Return an array by name, checked for its type and shape (None: any size)."""
        found = self.arrays.get(name) if isinstance(name, str) else None
        if found is None:
            raise MessageError(f"the message must contain the array {name!r}, but does not")
        fits = len(found.shape) == len(shape) and all(
            wanted in (None, size) for size, wanted in zip(found.shape, shape)
        )
        if not fits or found.dtype != np.dtype(dtype):
            wanted = f"{dtype} of shape {shape}"
            raise MessageError(f"{name} must be {wanted}, got {found.dtype} of {found.shape}")
        return found

    def value(self, name: str, kind: type[Any]) -> Any:
        """Return a plain value of the header, checked for its type."""
        return checked_value(self.header, name, kind)

    def model(self, name: Any, size: int | None, model_type: ModelType) -> Vector:
        """Return a model, in float32 however it travelled."""
        array = self.array(name, model_type, (size,))
        return torch.from_numpy(np.array(array, dtype=np.float32))


def read_mix(name: list[Any]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the names and the weights of a mix."""
    try:
        pairs = [(str(part), float(weight)) for part, weight in name]
        names, weights = zip(*pairs, strict=True)
        if not all(map(isfinite, weights)):
            raise ValueError("a weight must be finite")
    except (TypeError, ValueError, OverflowError):
        raise MessageError(
            f"a mix must be pairs of a name and a weight, got {shown(repr(name))}"
        ) from None
    return names, weights


class MessageBuilder:
    """Collects the arrays of a message; a model that is used twice goes in once."""

    def __init__(self, model_type: ModelType = "float32") -> None:
        self.model_type = model_type
        self.arrays: dict[str, NDArray[Any]] = {}
        self.models: IdentityDict[str] = IdentityDict()  # the array of each model

    def add(self, array: NDArray[Any], name: str = "") -> str:
        name = name or f"a{len(self.arrays)}"
        self.arrays[name] = array
        return name

    def add_model(self, model: Model) -> str:
        if model not in self.models:
            numbers = as_vector(model).cpu().numpy()
            self.models[model] = self.add(numbers.astype(self.model_type, copy=False))
        return self.models[model]

    def message(self, **header: Any) -> WireMessage:
        return WireMessage({"version": VERSION, **header}, self.arrays)


def asked_in(question: WireMessage) -> dict[str, int]:
    """How many trainings, evaluations, embeddings and samples a message asks for."""
    header = question.header
    asked = {name: _length(header.get(name)) for name in KINDS}
    asked["samples"] = _length(question.arrays.get("give")) if header.get("give") else 0
    asked["hello"] = int(header.get("ask") == "hello")
    return {name: number for name, number in asked.items() if number}


def left_in(reply: WireMessage) -> dict[str, int]:
    """How many models, scores, features, samples and bytes an answer holds."""
    header = reply.header
    outcomes = header.get("outcomes")
    known = [one for one in outcomes if isinstance(one, dict)] if isinstance(outcomes, list) else []
    masked = sum("masked" in one for one in known)
    left = {
        "models": _length(outcomes) - masked,
        "masked_models": masked,
        "unmasked_sums": _length(header.get("revealed")),
        "scores": _length(header.get("scores")),
        "embeds": _length(header.get("embeds")),
        "samples": _length(reply.arrays.get("gave")),
        "bytes": reply.nbytes,
    }
    return {name: number for name, number in left.items() if number}


def _length(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.size if value.ndim < 2 else len(value))
    return len(value) if isinstance(value, list) else 0
