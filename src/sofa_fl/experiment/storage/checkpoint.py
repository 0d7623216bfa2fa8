"""Save a state and load it by its type: one safetensors file, no pickle.

A state is a dataclass of tensors, arrays, mappings, tuples, other such dataclasses and plain
values. Tensors and arrays go into the file under their path in the state, one by one, so that they
are never all copied; the rest, with the order of mappings, goes into the header as JSON, after a
checksum of the whole file.
"""

from __future__ import annotations

import dataclasses
import io
import json
import typing
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import (
    DamagedError,
    replacing,
    write_all,
    write_checked,
)

T = TypeVar("T")
Tensors = dict[str, torch.Tensor | NDArray[Any]]
_KINDS = {
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    "uint8": "U8",
    "bool": "BOOL",
}
PLAIN = frozenset({int, float, str, bool, NoneType})
_RUN = 1 << 28  # bytes copied from a GPU at a time
_CHUNK = 1 << 22  # bytes checked at a time
# Where the checksum is: after the length of the header, at the header's beginning.
_OPENING = b'{"__metadata__": {"checksum": "'
_SUM_AT, _SUM_SIZE = 8 + len(_OPENING), 8


@dataclass(frozen=True, slots=True)
class Packed:
    """What is to be saved; `save` drops each tensor once it is written."""

    metadata: dict[str, str]
    tensors: Tensors

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def on_gpu(self) -> bool:
        tensors = self.tensors.values()
        return any(isinstance(tensor, torch.Tensor) and tensor.is_cuda for tensor in tensors)


def pack(**parts: object) -> Packed:
    """Prepare `parts`, by name, for saving; no tensor is copied."""
    tensors: Tensors = {}
    metadata = {name: json.dumps(_pack(part, name, tensors)) for name, part in parts.items()}
    return Packed(metadata, tensors)


def save(path: Path, packed: Packed, spare: Path | None = None) -> None:
    """Write to a file, over a `spare` one; a reader sees the old or the new one, never a part."""
    with replacing(path, spare=spare, what="the checkpoint ") as file:
        _write(file, packed)


def check_file(path: Path) -> None:
    """Raise unless a file is, to the bit, what was saved."""
    try:
        with path.open("rb") as file:
            head = file.read(_SUM_AT)
            told = file.read(_SUM_SIZE)
            checksum = zlib.crc32(head + bytes(_SUM_SIZE))
            while chunk := file.read(_CHUNK):
                checksum = zlib.crc32(chunk, checksum)
    except OSError as error:
        raise DamagedError(f"the checkpoint {path} cannot be read: {error.strerror}") from None
    if told != _hex(checksum) or not head.endswith(_OPENING):
        raise DamagedError(f"the checkpoint {path} is damaged: its checksum does not match")


def load(path: Path, name: str, kind: type[T], device: str = "cpu") -> T:
    """Load one part of a saved file; `kind` is its type, `device` where tensors go."""
    try:
        with safe_open(path, framework="pt", device=device) as file:
            tree = json.loads(file.metadata()[name])
            keys = [key for key in file.keys() if f"{key}.".startswith(f"{name}.")]  # noqa: SIM118
            # On a CPU a tensor maps the file, which a later round overwrites: copy it.
            tensors: Tensors = {
                key: file.get_tensor(key).clone() if device == "cpu" else file.get_tensor(key)
                for key in keys
            }
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"the checkpoint {path} is damaged: {error}") from None
    try:
        part: T = _unpack(kind, tree, name, tensors)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RunError(f"the checkpoint {path} does not contain a {kind.__name__}") from None
    return part


def _pack(value: Any, path: str, tensors: Tensors) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray) and _name(value) in _KINDS:
        tensors[path] = value
        return None
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value)]
        return {name: _pack(getattr(value, name), f"{path}.{name}", tensors) for name in names}
    if isinstance(value, Mapping):
        if PLAIN.issuperset(map(type, value.values())):  # of many clients, it is the usual case
            return list(value.items())  # JSON knows no tuples: pairs come back as lists
        return [[key, _pack(item, f"{path}.{key}", tensors)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        if PLAIN.issuperset(map(type, value)):
            return list(value)
        return [_pack(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a state cannot hold a {type(value).__name__} (at {path})")


def _write(file: io.FileIO, packed: Packed) -> None:
    """Write the safetensors format: length of the header, the header as JSON, the numbers.

    The checksum covers all this with zeros in its place, and is written last.
    """
    tensors = packed.tensors
    # Widest types first, so that all are aligned to their width.
    names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    unknown = "0" * _SUM_SIZE
    header: dict[str, object] = {"__metadata__": {"checksum": unknown, **packed.metadata}}
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.nbytes
        kind, shape = _KINDS[_name(tensor)], list(tensor.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    text = len(text).to_bytes(8, "little") + text
    write_all(file, text)
    checksum = zlib.crc32(text[:_SUM_AT] + bytes(_SUM_SIZE) + text[_SUM_AT + _SUM_SIZE :])
    for run in _runs(names, tensors):
        numbers = _numbers([tensors.pop(name) for name in run])
        checksum = write_checked(file, numbers, checksum)
    end = file.tell()
    file.seek(_SUM_AT)
    write_all(file, _hex(checksum))
    file.seek(end)


def _hex(checksum: int) -> bytes:
    return f"{checksum:0{_SUM_SIZE}x}".encode()


def _runs(names: list[str], tensors: Tensors) -> list[list[str]]:
    """What is written at a time: single arrays, or tensors on a GPU of up to `_RUN` bytes."""
    runs: list[list[str]] = []
    kind, room = "", 0
    for name in names:
        tensor = tensors[name]
        on_gpu = _name(tensor) if isinstance(tensor, torch.Tensor) and tensor.is_cuda else ""
        if not on_gpu or on_gpu != kind or tensor.nbytes > room:
            runs.append([])
            room = _RUN
        runs[-1].append(name)
        kind, room = on_gpu, room - tensor.nbytes
    return runs


def _numbers(run: Sequence[torch.Tensor | NDArray[Any]]) -> memoryview:
    """The bytes of a run; a copy from a GPU does not wait for what is computed there."""
    first = run[0]
    if not isinstance(first, torch.Tensor):
        array = first
    elif not first.is_cuda:
        array = first.detach().numpy()
    else:
        aside = copy_stream(first.device)
        with torch.cuda.stream(aside):
            flat = [
                tensor.detach().reshape(-1) for tensor in run if isinstance(tensor, torch.Tensor)
            ]
            together = torch.cat(flat)
            pinned = torch.empty(together.shape, dtype=together.dtype, pin_memory=True)
            pinned.copy_(together, non_blocking=True)
        aside.synchronize()
        array = pinned.numpy()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


@cache
def copy_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream on which nobody else computes; always the same, since memory is kept by stream.

    torch hands out the same 32 streams again and again, and the one on which a step is captured is
    among them: a copy would become a part of that step, and be repeated with it. Streams of
    another priority are others.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def _name(tensor: torch.Tensor | NDArray[Any]) -> str:
    """The name of a tensor's type, the same for torch and NumPy."""
    return str(tensor.dtype).removeprefix("torch.")


def _unpack(kind: Any, tree: Any, path: str, tensors: Tensors) -> Any:
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
        array = tensors[path]
        return array.cpu().numpy() if isinstance(array, torch.Tensor) else array
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {n: _unpack(hints[n], t, f"{path}.{n}", tensors) for n, t in tree.items()}
        return kind(**fields)  # type: ignore[operator]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _unpack(args[1], item, f"{path}.{key}", tensors) for key, item in tree}
    if origin is tuple:
        return tuple(_unpack(args[0], t, f"{path}.{i}", tensors) for i, t in enumerate(tree))
    return tree
