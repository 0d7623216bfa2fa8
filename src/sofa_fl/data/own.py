"""A user's own samples as `Arrays`: from NumPy arrays, or from a map-style (torch) dataset."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sofa_fl.data.federated_data import Arrays
from sofa_fl.errors import DataError


class MapDataset(Protocol):
    """What torch calls a map-style dataset; nothing of torch is needed to be one."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def from_arrays(x: ArrayLike, y: ArrayLike, *, scale: float = 1.0, shift: float = 0.0) -> Arrays:
    """Check inputs and targets, and convert them to the types that the engines expect.

    Inputs have shape (n, ...): uint8 stays, and all other types become float32. Integer targets are
    class labels from 0, of shape (n,), and become int64; float targets are for regression, of shape
    (n,) or (n, outputs), and become float32.
    """
    inputs, targets = _numbers(x, "inputs"), _numbers(y, "targets")
    if inputs.ndim < 2 or not inputs.size:
        raise DataError(
            "inputs must have shape (n, ...), with n and every dimension at least 1, got "
            f"{inputs.shape}; reshape single numbers to (n, 1)"
        )
    if inputs.dtype != np.uint8:
        inputs = inputs.astype(np.float32, copy=False)
    if targets.dtype.kind == "f":
        if targets.ndim not in (1, 2) or not targets.size:
            raise DataError(
                f"float targets must have shape (n,) or (n, outputs), got {targets.shape}"
            )
        return Arrays(inputs, targets.astype(np.float32, copy=False), scale, shift)
    if targets.ndim != 1 or not targets.size:
        raise DataError(
            f"class labels must have shape (n,), got {targets.shape}; "
            "flatten them, or pass floats for regression"
        )
    if (lowest := targets.min()) < 0:
        raise DataError(f"class labels must be at least 0, got {lowest}; renumber them from 0")
    return Arrays(inputs, targets.astype(np.int64, copy=False), scale, shift)


def from_dataset(dataset: MapDataset, *, scale: float = 1.0, shift: float = 0.0) -> Arrays:
    """Read a dataset whose items are pairs (input, target), each convertible to an array."""
    xs, ys = [], []
    for index in range(len(dataset)):
        item = dataset[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(
                f"an item of a dataset must be a pair (input, target), but item {index} is "
                f"{type(item).__name__}; wrap the dataset so that it yields pairs"
            )
        xs.append(_array(item[0], f"the input of item {index}"))
        ys.append(_array(item[1], f"the target of item {index}"))
    if not xs:
        raise DataError("a dataset must have at least one item, got none")
    return from_arrays(_stack(xs, "inputs"), _stack(ys, "targets"), scale=scale, shift=shift)


def _array(value: Any, what: str) -> NDArray[Any]:
    try:
        return np.asarray(value)
    # A tensor on another device, or one that needs a gradient, refuses by any of these.
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{what} cannot be converted to an array of numbers ({error})") from error


def _stack(values: list[NDArray[Any]], what: str) -> NDArray[Any]:
    if len(shapes := {value.shape for value in values}) > 1:
        first, second, *_ = sorted(shapes)
        raise DataError(
            f"all {what} of a dataset must have the same shape, got {first} and {second}; pad or "
            "crop them in the dataset"
        )
    return np.stack(values)


def _numbers(values: ArrayLike, what: str) -> NDArray[Any]:
    array = _array(values, what)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} must be integers or floats, got {array.dtype}; convert them")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row, *rest = map(int, np.argwhere(~np.isfinite(array))[0])
        at = f"row {row}" + "".join(f", column {column}" for column in rest[:1])
        raise DataError(
            f"{what} must be finite, got {array[row, *rest]} in {at}; clean or drop such rows, or "
            "read tables with from_csv or from_partitions, which fill in blanks"
        )
    return array
