"""The columns of tables: their cells, which of them are categories, and the targets."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Samples
from sofa_fl.data.preprocess import Column
from sofa_fl.errors import DataError

MANY = 100  # different words of a column that nobody named a category
COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
COMPARISON = re.compile(r"(.+?)\s*(>=|<=|==|>|<)\s*([-+.\deE]+)")
UNKNOWN = -1.0  # in a raw row, a word that was not among the training samples


class Table(Protocol):
    """Columns by name, all of one length."""

    def __getitem__(self, name: Any, /) -> Any: ...


def is_table(value: Any) -> TypeGuard[Table]:
    """Whether a value has columns by name, and is no array."""
    return hasattr(value, "keys") or hasattr(value, "columns") or hasattr(value, "column_names")


def column_names(table: Table) -> list[str]:
    """The names of the columns, as far as the table says them."""
    for name in ("column_names", "columns"):
        if (known := getattr(table, name, None)) is not None and not callable(known):
            return list(map(str, known))
    return list(map(str, getattr(table, "keys", list)()))


def column_of(table: Table, name: str) -> Any:
    try:
        return table[name]
    except (KeyError, IndexError, TypeError, ValueError):
        known = column_names(table)
        hint = f"; there are {', '.join(known)}" if known else ""
        raise DataError(f"{table_name(table)} has no column {name!r}{hint}") from None


def table_name(table: Table) -> str:
    """The file of a table, if it is known."""
    return str(getattr(table, "path", "the table"))


def where(table: Table, row: int) -> str:
    """The file and line of a row, or else its number from 0."""
    known: str = table.where(row) if hasattr(table, "where") else f"row {row}"
    return known


def cells_of(table: Table, name: str) -> NDArray[Any]:
    """A column's cells: numbers with NaN for blanks, or text with '' for blanks."""
    cells = np.asarray(column_of(table, name))
    if cells.ndim != 1:
        raise DataError(f"column {name!r} must have one number or word per row, got {cells.shape}")
    if cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    text = ["" if _is_blank(cell) else str(cell).strip() for cell in cells]
    if not any(text):
        return np.full(len(text), np.nan)
    return np.array(text)


def find_columns(
    tables: Sequence[Table], names: Sequence[str], categories: Collection[str], trained: Samples
) -> list[Column]:
    """What is in each column, judged by the rows that are trained on, of all tables together."""
    if unknown := sorted(set(categories) - set(names)):
        raise DataError(
            f"categories must be among the inputs {', '.join(names)}, but {unknown[0]!r} is not"
        )
    columns = []
    for name in names:
        parts = [cells_of(table, name) for table in tables]
        is_text = any(part.dtype.kind == "U" for part in parts)
        if not is_text and name not in categories:
            columns.append(Column(name))
            continue
        if is_text and name not in categories:
            _check_words(tables, parts, name)
        cells = np.concatenate([_words(part) if is_text else part for part in parts])[trained]
        known = np.unique(cells[cells != ""] if is_text else cells[~np.isnan(cells)])
        words = tuple(map(str, known.tolist())) if is_text else ()
        values = range(len(known)) if is_text else known.astype(np.float32).tolist()
        columns.append(Column(name, tuple(map(float, values)), words))
    return columns


def raw_rows(table: Table, columns: Sequence[Column]) -> NDArray[np.float32]:
    """The rows of a table as numbers: NaN for a blank, a position for a word."""
    raw = []
    for column in columns:
        cells = cells_of(table, column.name)
        if column.words:
            position = {word: float(at) for at, word in enumerate(column.words)} | {"": np.nan}
            raw.append([position.get(word, UNKNOWN) for word in _words(cells).tolist()])
            continue
        if cells.dtype.kind == "U":
            words = cells.tolist()
            at = next((at for at, cell in enumerate(words) if cell and not _is_number(cell)), None)
            if at is None:  # numbers that a data frame or an array holds as text or objects
                cells = np.array([float(cell) if cell else np.nan for cell in words])
        if cells.dtype.kind == "U":
            assert at is not None
            raise DataError(
                f"{where(table, at)}: column {column.name!r} must be a number, got {cells[at]!r}"
            )
        if len(bad := np.flatnonzero(np.isinf(cells))):
            raise DataError(f"{where(table, int(bad[0]))}: column {column.name!r} must be finite")
        raw.append(cells.tolist())
    return np.array(raw, dtype=np.float32).T


def target_column(names: Sequence[str], target: str) -> str:
    """The column that a target, compared or not, is read from; empty if there is none."""
    if target in names:
        return target
    match = COMPARISON.fullmatch(target)
    return match[1] if match is not None and match[1] in names else ""


def read_targets(table: Table, target: str) -> NDArray[Any]:
    """A column of targets; or two classes, by a comparison such as `num > 0`. None is blank."""
    match = COMPARISON.fullmatch(target)
    is_column = target in column_names(table) or match is None
    name = target if match is None or is_column else match[1]
    targets = np.asarray(column_of(table, name))
    blank = are_blank(targets)
    if blank.any():
        at = int(np.flatnonzero(blank)[0])
        raise DataError(f"{where(table, at)}: the target {name!r} is blank; delete that row")
    if match is None or is_column:
        return targets
    if targets.dtype.kind not in "biuf":
        raise DataError(
            f"{name!r} must contain numbers to be compared as {target!r}, but it contains text"
        )
    return np.asarray(COMPARISONS[match[2]](targets, float(match[3]))).astype(np.int64)


def are_blank(cells: NDArray[Any]) -> NDArray[np.bool_]:
    """Which cells are blank: NaN, None or empty text."""
    if cells.dtype.kind in "OUS":
        return np.array([_is_blank(cell) for cell in cells], dtype=bool)
    return np.isnan(cells) if cells.dtype.kind == "f" else np.zeros(len(cells), bool)


def _words(cells: NDArray[Any]) -> NDArray[Any]:
    """Numbers as they would have been written, so that 3 and 3.0 are one word."""
    if cells.dtype.kind == "U":
        return cells
    return np.array(["" if np.isnan(cell) else f"{cell:.15g}" for cell in cells.tolist()])


def _check_words(tables: Sequence[Table], parts: Sequence[NDArray[Any]], name: str) -> None:
    """Raise if a column of text looks like numbers with a misprint, or like names of rows."""
    words = [_words(part) for part in parts]
    filled = [word for part in words for word in part.tolist() if word]
    if 2 * sum(map(_is_number, filled)) > len(filled):
        table, row, cell = next(
            (table, row, cell)
            for table, part in zip(tables, words)
            for row, cell in enumerate(part.tolist())
            if cell and not _is_number(cell)
        )
        raise DataError(
            f"{where(table, row)}: column {name!r} must be a number, as in most rows, but is "
            f"{cell!r}; correct it, add it to blanks, or name {name!r} in categories"
        )
    if len(set(filled)) > MANY:
        raise DataError(
            f"column {name!r} has {len(set(filled))} different words; remove it from the inputs, "
            "or name it in categories"
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_blank(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())
