"""CSV files as tables that know where each of their rows was written."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from sofa_fl.errors import DataError

BLANKS = ("", "NA", "N/A", "NaN", "nan", "null", "?")
DELIMITERS = ",;\t|"
ENDINGS = (".csv", ".tsv")


class CsvTable(dict[str, NDArray[Any]]):
    """Columns by name, and the file and line that every row is from."""

    def __init__(self, path: Path, lines: Sequence[int], columns: Iterable[Any] = ()) -> None:
        super().__init__(columns)
        self.path, self.lines = path, lines

    def where(self, row: int) -> str:
        return f"{self.path}, line {self.lines[row]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvConfig:
    """How CSV files are read, and what their columns mean; for `data.name: csv`.

    Attributes:
        target: The target column; or a comparison such as `num > 0`, which gives two classes.
        inputs: The input columns; by default all other columns.
        drop: Columns to leave out.
        categories: Numeric columns whose values are categories. Text columns always are categories.
        client: The column that names the client of a row; by default every file is one client.
        delimiter: The character that separates cells; by default whichever of `,`, `;`, tab and `|`
            is most frequent in the header line.
        decimal: The decimal separator, `.` or `,`.
        blanks: Cell contents that mean that a value is missing.
        test: Fraction of every client's rows that is used only for scoring.
        standardize: Standardize every input to mean 0 and standard deviation 1, computed on the
            training rows.
    """

    target: str = ""
    inputs: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    client: str | None = None
    delimiter: str | None = None
    decimal: Literal[".", ","] = "."
    blanks: tuple[str, ...] = field(default=BLANKS)
    test: Annotated[float, Interval(gt=0, lt=1)] = 0.2
    standardize: bool = True


def read_csv(
    path: Path | str,
    *,
    delimiter: str | None = None,
    decimal: str = ".",
    blanks: Collection[str] = BLANKS,
) -> CsvTable:
    """The columns of a CSV file with a header: numeric if all cells are numbers, otherwise text.

    Args:
        path: The file.
        delimiter: The character that separates cells; by default whichever of `,`, `;`, tab and `|`
            is most frequent in the header line.
        decimal: The decimal separator, `.` or `,`.
        blanks: Cell contents that mean that a value is missing: NaN in a numeric column, otherwise
            empty text.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = delimiter or _delimiter(file.readline())
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter)
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"cannot read {path}: {why}") from None
    if len(rows) < 2:
        raise DataError(
            f"{path} must have a header line and at least one row, got {len(rows)} lines"
        )
    (_, head), *body = rows
    for line, row in body:
        if len(row) != len(head):
            raise DataError(f"{path} has {len(head)} columns, but line {line} has {len(row)} cells")
    names = [name.strip() for name in head]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path} has two columns named {twice!r}; rename one")
    columns = zip(names, zip(*(row for _, row in body)))
    typed = ((name, _typed(cells, decimal, set(blanks))) for name, cells in columns)
    return CsvTable(path, [line for line, _ in body], typed)


def find_csv(source: Path | str | Sequence[Path | str]) -> list[Path]:
    """A file, all CSV files of a folder in the order of their names, or the files themselves."""
    if not isinstance(source, str | Path):
        return [Path(file) for file in source]
    place = Path(source).expanduser()
    if not place.is_dir():
        return [place]
    found = sorted(file for file in place.iterdir() if file.suffix.lower() in ENDINGS)
    if not found:
        raise DataError(f"{place} contains no file that ends in {' or '.join(ENDINGS)}")
    return found


def _delimiter(head: str) -> str:
    """The most frequent one; a comma if there is none."""
    return max(DELIMITERS, key=head.count)


def _typed(cells: Sequence[str], decimal: str, blanks: set[str]) -> NDArray[Any]:
    text = ["" if cell.strip() in blanks else cell.strip() for cell in cells]
    numbers = [cell if decimal == "." else cell.replace(decimal, ".") for cell in text]
    if "" not in text:
        try:
            return np.array([int(cell) for cell in numbers])
        except (ValueError, OverflowError):
            pass
    try:
        return np.array([float(cell) if cell else np.nan for cell in numbers])
    except ValueError:
        return np.array(text)
