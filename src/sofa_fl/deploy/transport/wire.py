"""What goes over the wire: a header of plain values and arrays as raw bytes; no pickle.

Whatever is read from a parcel is checked for its kind and shape: who sent it may be broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.errors import SofaError
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Model, as_vector, identity

VERSION = 2  # of what parcels hold; both sides must agree
Transport = Literal["float32", "float16"]
KINDS = ("float32", "float16", "float64", "uint8", "int32", "int64")
Header = Mapping[str, Any]
ModelName = str | list[list[Any]]  # of an array; or pairs of such names and weights, for a mix


class GarbageError(SofaError, ValueError):
    """A parcel does not hold what it must."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message, in either direction."""

    header: Header
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Of the arrays; a header is small beside them."""
        return sum(array.nbytes for array in self.arrays.values())

    def array(self, name: Any, kind: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """An array by name, if it is of this kind and shape (None: any size)."""
        found = self.arrays.get(name) if isinstance(name, str) else None
        if found is None:
            raise GarbageError(f"there is no array {name!r}")
        fits = len(found.shape) == len(shape) and all(
            wanted in (None, size) for size, wanted in zip(found.shape, shape)
        )
        if not fits or found.dtype != np.dtype(kind):
            wanted = f"{kind} of shape {shape}"
            raise GarbageError(f"{name} must be {wanted}, got {found.dtype} of {found.shape}")
        return found

    def value(self, name: str, kind: type[Any]) -> Any:
        """A plain value of the header, if it is of this type."""
        return typed(self.header, name, kind)

    def model(self, name: Any, size: int | None, transport: Transport) -> Vector:
        """A model, in float32 however it travelled."""
        array = self.array(name, transport, (size,))
        return torch.from_numpy(np.array(array, dtype=np.float32))


def typed(values: Any, name: str, kind: type[Any]) -> Any:
    """`values[name]`, if it is of this type; a whole number is also a float."""
    found = values.get(name) if isinstance(values, Mapping) else None
    if isinstance(found, int) and not isinstance(found, bool) and kind is float:
        return float(found)
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise GarbageError(f"{name} must be of type {kind.__name__}, got {found!r}")
    return found


def read_mix(name: list[Any]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The names and weights of a mix; anything else is garbage."""
    try:
        pairs = [(str(part), float(weight)) for part, weight in name]
        names, weights = zip(*pairs, strict=True)
    except (TypeError, ValueError):
        raise GarbageError(f"a mix must be pairs of a name and a weight, got {name!r}") from None
    return names, weights


class Packer:
    """Collects the arrays of a parcel; a model that is used twice goes in once."""

    def __init__(self, transport: Transport = "float32") -> None:
        self.transport = transport
        self.arrays: dict[str, NDArray[Any]] = {}
        self.models: dict[object, tuple[Model, str]] = {}  # with the model: ids must stay taken

    def add(self, array: NDArray[Any], name: str = "") -> str:
        name = name or f"a{len(self.arrays)}"
        self.arrays[name] = array
        return name

    def add_model(self, model: Model) -> str:
        key = identity(model)
        if key not in self.models:
            numbers = as_vector(model).cpu().numpy()
            self.models[key] = model, self.add(numbers.astype(self.transport, copy=False))
        return self.models[key][1]

    def parcel(self, **header: Any) -> Parcel:
        return Parcel({"version": VERSION, **header}, self.arrays)


def check_version(parcel: Parcel) -> None:
    if (found := parcel.header.get("version")) != VERSION:
        raise GarbageError(
            f"version {VERSION} of the messages is needed, got {found!r}; install the same sofa-fl"
        )
