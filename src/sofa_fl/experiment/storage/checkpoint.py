"""Save a state and load it by its type: one safetensors file, no pickle.

A state is a dataclass of tensors, arrays, mappings, tuples, other such dataclasses and plain
values. Tensors and arrays go into the file under their path in the state; the rest, with the order
of mappings, goes into the file's metadata as JSON, together with a checksum of all this.
"""

from __future__ import annotations

import dataclasses
import json
import typing
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import DamagedError, replacing

T = TypeVar("T")
_KINDS = {*(f"float{bits}" for bits in (16, 32, 64)), *(f"int{bits}" for bits in (8, 16, 32, 64))}
_KINDS |= {"uint8", "bool"}
PLAIN = frozenset({int, float, str, bool, NoneType})
CHECKSUM = "crc32"  # 0.1.0 had a "checksum" of the file's bytes
_UNREADABLE = (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class Packed:
    """What is to be saved: JSON by part, and arrays by path."""

    metadata: dict[str, str]
    arrays: dict[str, NDArray[Any]]


def pack(**parts: object) -> Packed:
    """Prepare `parts`, by name, for saving; only what is on a GPU or has gaps is copied."""
    arrays: dict[str, NDArray[Any]] = {}
    metadata = {name: json.dumps(_pack(part, name, arrays)) for name, part in parts.items()}
    return Packed(metadata, arrays)


def save(path: Path, packed: Packed) -> None:
    """Write to a file; a reader sees the old or the new one, never a part."""
    checksum = _checksum(packed.metadata, sorted(packed.arrays.items()))
    with replacing(path, what="the checkpoint ") as temporary:
        save_file(packed.arrays, temporary, {**packed.metadata, CHECKSUM: checksum})


def check_file(path: Path) -> None:
    """Raise unless a file holds, to the bit, what was saved; of 0.1.0, unless it can be read."""
    try:
        with safe_open(path, framework="np") as file:
            metadata = dict(file.metadata())
            told = metadata.pop(CHECKSUM, None)
            if told is None and "checksum" in metadata:
                return
            names = sorted(file.keys())
            found = _checksum(metadata, ((name, file.get_tensor(name)) for name in names))
    except _UNREADABLE as error:
        raise DamagedError(f"the checkpoint {path} is damaged: {error}") from None
    if told != found:
        raise DamagedError(f"the checkpoint {path} is damaged: its checksum does not match")


def load(path: Path, name: str, kind: type[T], device: str = "cpu") -> T:
    """Load one part of a saved file; `kind` is its type, `device` where tensors go."""
    try:
        with safe_open(path, framework="pt") as file:
            tree = json.loads(file.metadata()[name])
            keys = [key for key in file.keys() if f"{key}.".startswith(f"{name}.")]  # noqa: SIM118
            # A copy, since a tensor maps the file, which someone may write over.
            tensors = {key: file.get_tensor(key).to(device, copy=True) for key in keys}
    except _UNREADABLE as error:
        raise DamagedError(f"the checkpoint {path} is damaged: {error}") from None
    try:
        part: T = _unpack(kind, tree, name, tensors)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RunError(
            f"the checkpoint {path} has no {kind.__name__} of this version; use the version of "
            "sofa-fl that wrote it"
        ) from None
    return part


def _checksum(metadata: Mapping[str, str], arrays: Iterable[tuple[str, NDArray[Any]]]) -> str:
    """CRC-32 of everything that is saved; it finds accidents, not forgery."""
    found = 0
    for name, text in sorted(metadata.items()):
        found = zlib.crc32(f"{name} {text}\n".encode(), found)
    for name, array in arrays:
        found = zlib.crc32(f"{name} {array.dtype.name} {array.shape}".encode(), found)
        found = zlib.crc32(array.reshape(-1).view(np.uint8).data, found)
    return f"{found:08x}"


def _pack(value: Any, path: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, torch.Tensor) and str(value.dtype).removeprefix("torch.") in _KINDS:
        arrays[path] = value.detach().cpu().contiguous().numpy()
        return None
    if isinstance(value, np.ndarray) and value.dtype.name in _KINDS:
        arrays[path] = np.asarray(value, value.dtype.newbyteorder("<"), order="C")
        return None
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value)]
        return {name: _pack(getattr(value, name), f"{path}.{name}", arrays) for name in names}
    if isinstance(value, Mapping):
        if PLAIN.issuperset(map(type, value.values())):  # of many clients, it is the usual case
            return list(value.items())  # JSON knows no tuples: pairs come back as lists
        return [[key, _pack(item, f"{path}.{key}", arrays)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        if PLAIN.issuperset(map(type, value)):
            return list(value)
        return [_pack(item, f"{path}.{i}", arrays) for i, item in enumerate(value)]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a state cannot hold a {type(value).__name__} (at {path})")


def _unpack(kind: Any, tree: Any, path: str, tensors: Mapping[str, torch.Tensor]) -> Any:
    kind = getattr(kind, "__supertype__", kind)  # NodeId is an int
    # A type with a name of its own, as NDArray is in newer versions of NumPy.
    kind = getattr(typing.get_origin(kind) or kind, "__value__", kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, UnionType):
        if tree is None and NoneType in args:
            return None
        (kind,) = (arg for arg in args if arg is not NoneType)
        return _unpack(kind, tree, path, tensors)
    if kind is torch.Tensor:
        return tensors[path]
    if origin is np.ndarray:
        return tensors[path].cpu().numpy()
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {n: _unpack(hints[n], t, f"{path}.{n}", tensors) for n, t in tree.items()}
        return kind(**fields)  # type: ignore[operator]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _unpack(args[1], item, f"{path}.{key}", tensors) for key, item in tree}
    if origin is tuple:
        return tuple(_unpack(args[0], t, f"{path}.{i}", tensors) for i, t in enumerate(tree))
    return tree
