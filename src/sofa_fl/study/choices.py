"""What the sweep has chosen: `choices.json`, a list with an entry per setting, method, sharing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sofa_fl.study.rows import Row, read_rows
from sofa_fl.study.settings import Overrides

Key = tuple[str, str, float]
Choices = Mapping[Key, Overrides]
FILE = "choices.json"


def key_of(row: Row) -> Key:
    return row["setting"], row["method"], row["sharing"]


def read_choices(out: Path) -> dict[Key, Overrides]:
    """The chosen hyperparameters; none where no sweep has been made."""
    return {key_of(row): row["overrides"] for row in read_rows(out / FILE)}
