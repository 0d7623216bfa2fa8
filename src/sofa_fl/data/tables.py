"""A user's own tables as `Arrays` and federations: CSV files, data frames, Hugging Face datasets.

A table is anything that gives a column by its name: a dict of lists, a data frame, a Hugging Face
dataset. Nothing of theirs is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.columns import (
    Table,
    column_names,
    column_of,
    find_columns,
    raw_rows,
    read_targets,
    target_column,
    where,
)
from sofa_fl.data.csv_files import CsvConfig, find_csv, read_csv
from sofa_fl.data.dealing import deal, deal_rows, num_outputs
from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.data.own import from_arrays
from sofa_fl.data.preprocess import Column, fit_preprocessing
from sofa_fl.errors import DataError

FILLING = "fill it in, or use from_csv or from_partitions, which fill in blanks"


def from_csv(
    source: Path | str | Sequence[Path | str],
    *,
    holdout: float = 0.05,
    seed: int = 0,
    **options: Any,
) -> FederatedData:
    """A federation from CSV files with a header line: every file is a client, named after it.

    Args:
        source: A folder of files, a list of files, or one file with a column for the `client`.
        holdout: As in `deal`.
        seed: The seed of every random draw.
        options: The fields of `CsvConfig`: `target`, `inputs`, `drop`, `categories`, `client`,
            `delimiter`, `decimal`, `blanks`, `test`, `standardize`.
    """
    return read_federation(source, CsvConfig(**options), holdout=holdout, seed=seed)


def read_federation(
    source: Path | str | Sequence[Path | str], config: CsvConfig, *, holdout: float, seed: int
) -> FederatedData:
    """What `from_csv` gives, by a configuration."""
    files = find_csv(source)
    tables = [
        read_csv(file, delimiter=config.delimiter, decimal=config.decimal, blanks=config.blanks)
        for file in files
    ]
    if not config.target:
        raise DataError(
            f"target must name the target column; {files[0]} has {', '.join(tables[0])}"
        )
    left_out = {config.client, *config.drop}
    inputs = config.inputs or _other_columns(tables[0], config.target, left_out)
    for name in config.drop:
        column_of(tables[0], name)  # a misspelt one would stay an input
    if config.client is None:
        owners = [np.full(len(table.lines), file.stem) for file, table in zip(files, tables)]
    else:
        owners = [np.asarray(column_of(table, config.client)) for table in tables]
    return _federation(
        tables,
        np.concatenate(owners),
        x=inputs,
        y=config.target,
        categories=config.categories,
        standardize=config.standardize,
        test=config.test,
        holdout=holdout,
        seed=seed,
    )


def from_columns(
    table: Table,
    *,
    x: str | Sequence[str],
    y: str,
    classes: Sequence[Any] | None = None,
    scale: float | None = None,
    shift: float | None = None,
) -> Arrays:
    """Inputs and targets from the columns of a table.

    Args:
        table: A dict of columns, a data frame, a Hugging Face dataset, or a similar object.
        x: The numeric columns that make up an input; or one column whose cells are inputs: lists,
            arrays or images.
        y: The target column. Text becomes class numbers, whole numbers are class labels, and other
            numbers are for regression. A comparison such as `num > 0` gives two classes.
        classes: The order in which text becomes class numbers; sorted by default.
        scale: A network gets `x * scale + shift`; by default, images are scaled to [-1, 1], and
            everything else is unchanged.
        shift: See `scale`.
    """
    if isinstance(x, str):
        inputs, are_images = _cells(column_of(table, x), x)
    else:
        inputs, are_images = np.stack([_numbers(table, name) for name in _named(x)], axis=1), False
    targets, words = read_targets(table, y), []
    if targets.dtype.kind in "OUS":
        words = sorted({*map(str, targets)}) if classes is None else [*map(str, classes)]
        targets = _numbered(targets, y, words)
    usual = (1 / 127.5, -1.0) if are_images and inputs.dtype == np.uint8 else (1.0, 0.0)
    scale, shift = (
        given if given is not None else use for given, use in zip((scale, shift), usual)
    )
    arrays = from_arrays(inputs, targets, scale=scale, shift=shift)
    if isinstance(x, str):
        return arrays
    preprocessing = fit_preprocessing(
        arrays.x,
        columns=[Column(name) for name in x],
        standardize=False,
        classes=words,
        target=y,
        unused=_unused_columns([table], y, x),
    )
    return replace(arrays, preprocessing=preprocessing)


def from_partitions(
    parts: Iterable[Table] | Mapping[str, Table],
    *,
    y: str,
    x: str | Sequence[str] | None = None,
    categories: Sequence[str] = (),
    test: float = 0.2,
    holdout: float = 0.05,
    standardize: bool = False,
    seed: int = 0,
) -> FederatedData:
    """A federation with one table per client, such as the partitions of flwr-datasets.

    Args:
        parts: The clients' tables, for example `fds.load_partition(i)` for every `i`; or a mapping
            from the clients' names to their tables.
        y: As in `from_columns`.
        x: As in `from_columns`; by default all columns but `y`. Blank numbers become the mean of
            their column, and text becomes one input per word.
        categories: Numeric columns whose values are categories: one input per value.
        test: As in `deal`.
        holdout: As in `deal`.
        standardize: As in `deal`.
        seed: As in `deal`.
    """
    names = list(parts) if isinstance(parts, Mapping) else None
    tables = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
    if not tables:
        raise DataError("there must be at least one partition, got none")
    columns = _other_columns(tables[0], y, set()) if x is None else x
    sizes = [len(read_targets(table, y)) for table in tables]
    owner = np.repeat(np.arange(len(tables)) if names is None else np.array(names), sizes)
    return _federation(
        tables,
        owner,
        x=columns,
        y=y,
        categories=categories,
        standardize=standardize,
        test=test,
        holdout=holdout,
        seed=seed,
    )


def _kind_of(targets: NDArray[Any]) -> str:
    kind = targets.dtype.kind
    return "text" if kind in "OUS" else "whole numbers" if kind in "iub" else "numbers"


def _place(tables: Sequence[Table], index: int) -> str:
    """What a user calls a table: its file, or its number."""
    path = getattr(tables[index], "path", None)
    return str(path.name) if path is not None else f"table {index + 1}"


def _federation(
    tables: Sequence[Table],
    owner: NDArray[Any],
    *,
    x: str | Sequence[str],
    y: str,
    categories: Sequence[str],
    standardize: bool,
    test: float,
    holdout: float,
    seed: int,
) -> FederatedData:
    """Deal the rows of tables out to their owners, and fit the preprocessing to what is trained."""
    found = [read_targets(table, y) for table in tables]
    kinds = [_kind_of(targets) for targets in found]
    if len(set(kinds)) > 1:
        places = (f"{kind} in {_place(tables, kinds.index(kind))}" for kind in sorted(set(kinds)))
        raise DataError(
            f"the target {y!r} must have the same type in all tables, got {', '.join(places)}"
        )
    is_text = kinds[0] == "text"
    classes = sorted({str(value) for part in found for value in part}) if is_text else []
    if isinstance(x, str):
        arrays = [from_columns(table, x=x, y=y, classes=classes or None) for table in tables]
        return deal(
            _joined(arrays), owner, test=test, holdout=holdout, standardize=standardize, seed=seed
        )
    targets = np.concatenate([_numbered(t, y, classes) if is_text else t for t in found])
    rows = deal_rows(owner, len(targets), test, holdout, seed)
    columns = find_columns(tables, _named(x), categories, rows.trained)
    raw = np.concatenate([raw_rows(table, columns) for table in tables])
    preprocessing = fit_preprocessing(
        raw[rows.trained],
        columns=columns,
        standardize=standardize,
        classes=classes,
        target=y,
        unused=_unused_columns(tables, y, x),
    )
    whole = from_arrays(preprocessing.apply(raw), targets)
    return FederatedData(
        whole.take(rows.trained),
        whole.take(rows.scored),
        rows.clients,
        num_outputs(whole),
        names=rows.names,
        preprocessing=preprocessing,
    )


def _other_columns(table: Table, y: str, left_out: set[str | None]) -> list[str]:
    """All columns that are neither the target, compared or not, nor left out."""
    names = column_names(table)
    target = target_column(names, y)
    return [name for name in names if name != target and name not in left_out]


def _unused_columns(tables: Sequence[Table], y: str, x: Sequence[str]) -> list[str]:
    """The columns of any table that are neither inputs nor the target, in their order."""
    names = dict.fromkeys(name for table in tables for name in column_names(table))
    return [name for name in names if name not in {*x, target_column(list(names), y)}]


def _named(x: Sequence[str]) -> list[str]:
    if not x:
        raise DataError("x must name at least one column, got none")
    return list(x)


def _joined(arrays: Sequence[Arrays]) -> Arrays:
    if len(shapes := {part.x.shape[1:] for part in arrays}) > 1:
        first, second, *_ = sorted(shapes)
        raise DataError(
            f"all partitions must have inputs of the same shape, got {first} and {second}"
        )
    x, y = (np.concatenate([getattr(part, name) for part in arrays]) for name in "xy")
    return Arrays(x, y, arrays[0].scale, arrays[0].shift)


def _numbers(table: Table, name: str) -> NDArray[Any]:
    column = np.asarray(column_of(table, name))
    if column.ndim != 1 or column.dtype.kind not in "biuf":
        raise DataError(
            f"column {name!r} must contain numbers, got {column.dtype} of shape {column.shape}; "
            "convert it, or remove it from x"
        )
    if column.dtype.kind == "f" and len(blank := np.flatnonzero(np.isnan(column))):
        raise DataError(f"{where(table, int(blank[0]))}: column {name!r} is blank; {FILLING}")
    return column.astype(np.float32)


def _cells(column: Any, name: str) -> tuple[NDArray[Any], bool]:
    """The inputs of one column, images with their channels first; and whether they are images."""
    cells = list(column)
    are_images = bool(cells) and hasattr(cells[0], "getbands")  # as Pillow's have it
    arrays = [np.asarray(cell) for cell in cells]
    if len(shapes := {array.shape for array in arrays}) > 1:
        first, second, *_ = sorted(shapes)
        raise DataError(
            f"all cells of {name!r} must have the same shape, got {first} and {second}; resize, "
            "pad or crop them"
        )
    inputs = np.stack(arrays) if arrays else np.zeros((0, 1))
    if are_images:
        return (inputs[:, None] if inputs.ndim == 3 else np.moveaxis(inputs, -1, 1)), True
    return (inputs[:, None] if inputs.ndim == 1 else inputs), False


def _numbered(values: NDArray[Any], name: str, classes: Sequence[str]) -> NDArray[np.int64]:
    text = [str(value) for value in values]
    number = {value: at for at, value in enumerate(classes)}
    if strange := sorted(set(text) - set(classes)):
        raise DataError(f"column {name!r} contains {strange[0]!r}, which is not one of {classes}")
    return np.array([number[value] for value in text], dtype=np.int64)
