"""A state on disk and back: one safetensors file, read by type; no pickle.

A state is a dataclass of tensors, arrays, mappings, tuples, other such dataclasses and plain
values. Tensors and arrays go into the file under their path in the state; the rest, with the
order of mappings, into its header as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from sofa_fl.errors import RunError

T = TypeVar("T")
Tensors = dict[str, torch.Tensor]


def save(path: Path, **parts: object) -> None:
    """Write `parts` by name; a reader sees the old file or the new one, never half of one."""
    tensors: Tensors = {}
    header = {name: json.dumps(_pack(part, name, tensors)) for name, part in parts.items()}
    temporary = path.with_suffix(".partial")
    try:
        save_file(_apart(tensors), temporary, metadata=header)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (SafetensorError, OSError) as error:
        raise RunError(f"cannot write the checkpoint {path}: {error}") from None


def load(path: Path, name: str, kind: type[T]) -> T:
    """Read one part of what `save` wrote; `kind` is its type."""
    try:
        with safe_open(path, framework="pt") as file:
            tree = json.loads(file.metadata()[name])
            keys = [key for key in file.keys() if f"{key}.".startswith(f"{name}.")]  # noqa: SIM118
            tensors = {key: file.get_tensor(key) for key in keys}
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"the checkpoint {path} is damaged: {error}") from None
    try:
        part: T = _unpack(kind, tree, name, tensors)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RunError(f"the checkpoint {path} holds no {kind.__name__}") from None
    return part


def _pack(value: Any, path: str, tensors: Tensors) -> Any:
    if isinstance(value, torch.Tensor):
        tensors[path] = value.detach().cpu()
        return None
    if isinstance(value, np.ndarray):
        tensors[path] = torch.from_numpy(np.array(value))
        return None
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value)]
        return {name: _pack(getattr(value, name), f"{path}.{name}", tensors) for name in names}
    if isinstance(value, Mapping):
        return [[key, _pack(item, f"{path}.{key}", tensors)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [_pack(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a state cannot hold a {type(value).__name__} (at {path})")


def _apart(tensors: Tensors) -> Tensors:
    """The tensors, copied where they share memory: a file may not hold the same memory twice."""
    used: set[int] = set()
    apart: Tensors = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        shared = storage.nbytes() != tensor.nbytes or storage.data_ptr() in used
        used.add(storage.data_ptr())
        contiguous = torch.contiguous_format
        apart[name] = tensor.clone(memory_format=contiguous) if shared else tensor.contiguous()
    return apart


def _unpack(kind: Any, tree: Any, path: str, tensors: Tensors) -> Any:
    kind = getattr(kind, "__supertype__", kind)  # NodeId is an int
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, UnionType):
        if tree is None and NoneType in args:
            return None
        (kind,) = (arg for arg in args if arg is not NoneType)
        return _unpack(kind, tree, path, tensors)
    if kind is torch.Tensor:
        return tensors[path]
    if origin is np.ndarray:
        return tensors[path].numpy()
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {n: _unpack(hints[n], t, f"{path}.{n}", tensors) for n, t in tree.items()}
        return kind(**fields)  # type: ignore[operator]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _unpack(args[1], item, f"{path}.{key}", tensors) for key, item in tree}
    if origin is tuple:
        return tuple(_unpack(args[0], t, f"{path}.{i}", tensors) for i, t in enumerate(tree))
    return tree
