"""What is made of the code is complete, and what the pages name is there."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Interval
from api_page import api_page
from commands_page import commands_page
from config_page import attributes, config_page, keys, words

import sofa_fl
from sofa_fl.experiment.run.config import Config, load_config
from tests.docs.blocks import DOCS

ROOT = DOCS.parent
SOURCES = (ROOT, ROOT / "src" / "sofa_fl", ROOT / "packages" / "sofa-fl-flower" / "src")


def test_every_key_has_a_row() -> None:
    rows = [line.split("`")[1] for line in config_page().splitlines() if line.startswith("| `")]
    assert rows == list(dict.fromkeys(rows))
    assert set(rows) == set(keys())


def test_every_key_can_be_set() -> None:
    for key in keys():
        section: object = Config()
        for part in key.split("."):
            section = getattr(section, part)
    assert load_config(None, ["sofa.shape.split=0.5"]).sofa.shape.split == 0.5


def test_a_row_has_meaning_range_and_default() -> None:
    (row,) = [line for line in config_page().splitlines() if line.startswith("| `participation`")]
    assert "take part in a round" in row
    assert "number, above 0, at most 1; default `1.0`" in row


def test_a_key_without_words_is_an_error() -> None:
    with pytest.raises(TypeError, match="no words"):
        words(complex)


def test_types_in_words() -> None:
    assert words(Annotated[int, Ge(1)]) == "whole number, at least 1"
    assert words(Annotated[float, Interval(ge=0, lt=1)] | None) == (
        "number, at least 0, below 1; or `null`"
    )
    assert words(Literal["a", "b"]) == "`a` or `b`"
    assert words(tuple[Literal["a"], ...]) == "list of: `a`"


def test_texts_over_several_lines_are_one() -> None:
    @dataclasses.dataclass
    class Some:
        """Some.

        Attributes:
            one: First
                and second.
            two: Third.
        """

    assert attributes(Some) == {"one": "First and second.", "two": "Third."}


def test_every_command_and_public_name_is_there() -> None:
    for name in ("run", "resume", "watch", "report", "tree", "compare"):
        assert f"## `sofa-fl {name}`" in commands_page()
    page = api_page()
    for name in sofa_fl.__all__:
        assert f".{name}\n" in page or f"`{name}`" in page, name


def test_every_picture_is_there() -> None:
    for page in DOCS.glob("*.md"):
        for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (DOCS / Path(link)).is_file(), f"{page.name}: {link}"


def test_every_source_file_that_is_named_is_there() -> None:
    for page in ("architecture.md", "algorithm.md", "data.md"):
        for name in re.findall(r"`([\w/]+\.py)`", (DOCS / page).read_text(encoding="utf-8")):
            found = (ROOT / name).is_file() or any((root / name).is_file() for root in SOURCES)
            assert found, f"{page}: {name}"
