"""A user's own tables as `Arrays`: CSV files, data frames, Hugging Face datasets, partitions.

A table is anything that gives a column by its name: a dict of lists, a data frame, a Hugging Face
dataset. Nothing of theirs is imported.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import Arrays, FederatedData
from sofa_fl.data.dealing import deal
from sofa_fl.data.own import from_arrays
from sofa_fl.errors import DataError


class Table(Protocol):
    """Columns by name, all of one length."""

    def __getitem__(self, name: Any, /) -> Any: ...


def read_csv(path: Path | str, *, delimiter: str = ",") -> dict[str, NDArray[Any]]:
    """The columns of a CSV file with a head line: numbers where all cells are some, else text."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {error}") from None
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise DataError(f"{path} must have a head line and at least one row, got {len(rows)} lines")
    head, *body = rows
    for line, row in enumerate(body, start=2):
        if len(row) != len(head):
            raise DataError(f"{path} has {len(head)} columns, but row {line} has {len(row)} cells")
    return {name.strip(): _typed(cells) for name, cells in zip(head, zip(*body))}


def from_columns(
    table: Table,
    *,
    x: str | Sequence[str],
    y: str,
    classes: Sequence[Any] | None = None,
    scale: float | None = None,
    shift: float | None = None,
) -> Arrays:
    """Inputs and targets out of the columns of a table.

    Args:
        table: A dict of columns, a data frame, a Hugging Face dataset, or the like.
        x: The columns of numbers that make an input; or one column whose cells are inputs: lists,
            arrays, images.
        y: The column of targets. Text becomes class numbers, whole numbers are class labels, other
            numbers are for regression.
        classes: The order in which text becomes class numbers; by default sorted.
        scale, shift: A network sees `x * scale + shift`; by default images lie in [-1, 1] and all
            else is left as it is.
    """
    if isinstance(x, str):
        inputs, are_images = _cells(_column(table, x), x)
    else:
        if not x:
            raise DataError("x must name at least one column, got none")
        inputs, are_images = np.stack([_numbers(table, name) for name in x], axis=1), False
    targets = np.asarray(_column(table, y))
    if targets.dtype.kind in "OUS":
        targets = _numbered(targets, y, classes)
    usual = (1 / 127.5, -1.0) if are_images and inputs.dtype == np.uint8 else (1.0, 0.0)
    scale, shift = (
        given if given is not None else use for given, use in zip((scale, shift), usual)
    )
    return from_arrays(inputs, targets, scale=scale, shift=shift)


def from_partitions(
    parts: Iterable[Table],
    *,
    x: str | Sequence[str],
    y: str,
    test: float = 0.2,
    holdout: float = 0.05,
    seed: int = 0,
) -> FederatedData:
    """A federation of which every client has a table, as flwr-datasets deals them out.

    `parts` are the clients' tables, for example `fds.load_partition(i)` for every `i`; of each, the
    fraction `test` is put aside for scoring. The rest is as in `from_columns` and `deal`.
    """
    tables = list(parts)
    if not tables:
        raise DataError("there must be at least one partition, got none")
    found = [np.asarray(_column(table, y)) for table in tables]
    is_text = any(column.dtype.kind in "OUS" for column in found)
    classes = sorted({str(value) for column in found for value in column}) if is_text else None
    arrays = [from_columns(table, x=x, y=y, classes=classes) for table in tables]
    if len(shapes := {part.x.shape[1:] for part in arrays}) > 1:
        first, second, *_ = sorted(shapes)
        raise DataError(f"all partitions must have inputs of one shape, got {first} and {second}")
    whole = Arrays(
        np.concatenate([part.x for part in arrays]),
        np.concatenate([part.y for part in arrays]),
        arrays[0].scale,
        arrays[0].shift,
    )
    owner = np.repeat(np.arange(len(arrays)), [len(part) for part in arrays])
    return deal(whole, owner, test=test, holdout=holdout, seed=seed)


def _typed(cells: Sequence[str]) -> NDArray[Any]:
    text = [cell.strip() for cell in cells]
    for kind in (int, float):
        try:
            return np.array([kind(cell) for cell in text])
        except ValueError:
            continue
    return np.array(text)


def _column(table: Table, name: str) -> Any:
    try:
        return table[name]
    except (KeyError, IndexError, TypeError, ValueError):
        known = list(getattr(table, "column_names", None) or getattr(table, "keys", list)())
        hint = f"; there are {', '.join(map(str, known))}" if known else ""
        raise DataError(f"the table has no column {name!r}{hint}") from None


def _numbers(table: Table, name: str) -> NDArray[Any]:
    column = np.asarray(_column(table, name))
    if column.ndim != 1 or column.dtype.kind not in "biuf":
        raise DataError(
            f"column {name!r} must be numbers, got {column.dtype} of shape {column.shape}; convert "
            "it, or leave it out of x"
        )
    return column.astype(np.float32)


def _cells(column: Any, name: str) -> tuple[NDArray[Any], bool]:
    """The inputs of one column, images with their channels first; and whether they are images."""
    cells = list(column)
    are_images = bool(cells) and hasattr(cells[0], "getbands")  # as Pillow's have it
    arrays = [np.asarray(cell) for cell in cells]
    if len(shapes := {array.shape for array in arrays}) > 1:
        first, second, *_ = sorted(shapes)
        raise DataError(
            f"all cells of {name!r} must have one shape, got {first} and {second}; "
            "resize, pad or crop them"
        )
    inputs = np.stack(arrays) if arrays else np.zeros((0, 1))
    if are_images:
        return (inputs[:, None] if inputs.ndim == 3 else np.moveaxis(inputs, -1, 1)), True
    return (inputs[:, None] if inputs.ndim == 1 else inputs), False


def _numbered(values: NDArray[Any], name: str, classes: Sequence[Any] | None) -> NDArray[np.int64]:
    text = [str(value) for value in values]
    order = sorted(set(text)) if classes is None else [str(value) for value in classes]
    number = {value: at for at, value in enumerate(order)}
    if strange := sorted(set(text) - set(order)):
        raise DataError(f"column {name!r} has {strange[0]!r}, which is none of {order}")
    return np.array([number[value] for value in text], dtype=np.int64)
