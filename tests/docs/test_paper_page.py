"""The page on the paper names, for every symbol and line, functions that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "paper.md"
HEAD = ["paper", "where", "same or chosen"]
NAME = re.compile(r"`((?:sofa_fl|study)(?:\.\w+)+)`")
DASH = "\N{EN DASH}"  # in place of a name, where nothing in the code corresponds
LINES = re.compile(rf"(\d+)(?:{DASH}(\d+))?:")
VERDICTS = ("Same", "Chosen", "Differs")
# How many lines each listing of the paper has, and those that only end a loop or a condition.
LISTINGS = {
    "Algorithm 1": (23, {7, 8, 17, 20, 21, 23}),
    "Algorithm 2": (7, {7}),
    "Algorithm 3": (6, {6}),
    "Algorithm 4": (12, {8, 12}),
    "Algorithm 5": (18, {7, 13, 16, 17}),
    "Partial data sharing, first listing": (14, {7, 8, 13, 14}),
    "Partial data sharing, second listing": (12, {7, 12}),
    "Algorithm 6": (8, {8}),
}


def rows_of(markdown: str) -> dict[str, list[list[str]]]:
    """By section, the rows of the tables that have a column *where*."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^## ", markdown, flags=re.MULTILINE)[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
        if cells and cells[0] == HEAD:
            found[section.splitlines()[0]] = cells[2:]
    return found


def locate(name: str) -> object:
    """Import what a dotted name stands for; the fields of a dataclass count as its attributes."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        for part in parts[end:]:
            fields: dict[str, object] = getattr(value, "__dataclass_fields__", {})
            value = fields.get(part) or getattr(value, part)
        return value
    raise ModuleNotFoundError(name)


def numbers_of(rows: list[list[str]]) -> set[int]:
    """The lines of a listing that have a row: one named after lines 4 to 6 is three of them."""
    lines: set[int] = set()
    for found in (LINES.match(row[0]) for row in rows):
        if found is not None:
            lines |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    return lines


ROWS = rows_of(PAGE.read_text(encoding="utf-8"))
ALL = [row for rows in ROWS.values() for row in rows]
NAMES = sorted({name for _, where, _ in ALL for name in NAME.findall(where)})


@pytest.mark.parametrize("name", NAMES)
def test_every_named_function_exists(name: str) -> None:
    locate(name)


def test_every_row_says_where_and_whether() -> None:
    for row in ALL:
        assert len(row) == len(HEAD), row
        _, where, verdict = row
        assert NAME.sub("", where).replace(",", "").strip() in ("", DASH), row
        assert verdict.startswith(VERDICTS), row
        assert NAME.search(where) or verdict.startswith("Chosen"), row


def test_every_line_of_every_listing_has_a_row() -> None:
    for title, (num, ends) in LISTINGS.items():
        (rows,) = [rows for name, rows in ROWS.items() if name.startswith(title)]
        assert numbers_of(rows) == set(range(1, num + 1)) - ends, title


def test_every_symbol_of_the_objective_figure_and_table_has_a_row() -> None:
    symbols = {row[0] for row in ROWS["The objective"]}
    assert {
        "w_j",
        "w_u",
        "F_u",
        "\N{GREEK SMALL LETTER ALPHA}_j",
        "\N{GREEK SMALL LETTER BETA}_j",
        "x_u",
        "x_j",
        "Q",
        "C_j",
        "S",
    } <= symbols
    assert any(symbol.startswith("D ") for symbol in symbols)
    shown = " ".join(row[0] for row in ROWS["Figures and tables"])
    for number in range(1, 8):
        assert f"Figure {number}" in shown
    assert "Table 1" in shown
    assert "Table 2" in shown


def test_a_name_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(AttributeError):
        locate("sofa_fl.sharing.no_such_name")
    with pytest.raises(ModuleNotFoundError):
        locate("no_such_package.name")
