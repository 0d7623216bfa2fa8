"""What is made of the code is complete, and the figures are those that the code draws."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Literal

import dmac_picture
import pytest
from annotated_types import Ge, Interval
from api_page import api_page
from commands_page import commands_page
from config_page import attributes, config_page, keys, words
from edit_pictures import Story, draw, stories
from round_picture import draw as draw_round
from sharing_picture import draw as draw_sharing

import sofa_fl
from sofa_fl.experiment.run.config import Config, load_config
from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.dmac import paper_dmac
from tests.docs.blocks import DOCS

IMAGES = DOCS / "images"
ROOT = DOCS.parent
SOURCES = (ROOT, ROOT / "src" / "sofa_fl", ROOT / "packages" / "sofa-fl-flower" / "src")
# Written by the study's code, for readers of the others.
RESULTS = {"results.md", "drift.md", "natural.md", "tree.md", "privacy.md"}


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
    for name in ("run", "resume", "watch", "report", "tree", "compare", "reproduce"):
        assert f"## `sofa-fl {name}`" in commands_page()
    page = api_page()
    for name in sofa_fl.__all__:
        assert f".{name}\n" in page or f"`{name}`" in page, name


@pytest.mark.parametrize("story", list(stories()), ids=lambda story: story.name)
def test_the_figures_of_edits_are_up_to_date(story: Story) -> None:
    drawn = (IMAGES / f"edit-{story.name}.svg").read_text(encoding="utf-8")
    assert drawn == draw(story), "run python docs_build/edit_pictures.py"


def test_there_is_a_figure_of_every_edit() -> None:
    made = {type(edit).__name__.lower() for story in stories() for edit in story.edits}
    assert made == {"graft", "prune", "merge", "split", "join", "leave"}


def test_the_figure_of_a_round_is_up_to_date() -> None:
    drawn = (IMAGES / "round.svg").read_text(encoding="utf-8")
    assert drawn == draw_round(), "run python docs_build/round_picture.py"


def test_the_figure_of_dmac_is_up_to_date_and_shows_what_dmac_does() -> None:
    drawn = (IMAGES / "dmac.svg").read_text(encoding="utf-8")
    assert drawn == dmac_picture.draw(), "run python docs_build/dmac_picture.py"
    tree = paper_dmac(dmac_picture.SPACE, DmacConfig(increase=dmac_picture.GAMMA))
    steps = dmac_picture.trace(dmac_picture.SPACE, dmac_picture.GAMMA)
    joined = sorted(sorted(group) for step in steps for group in step.groups)
    assert joined == sorted(sorted(tree.children[cluster]) for cluster in tree.clusters)


def test_the_figure_of_sharing_is_up_to_date() -> None:
    drawn = (IMAGES / "sharing.svg").read_text(encoding="utf-8")
    assert drawn == draw_sharing(), "run python docs_build/sharing_picture.py"


def test_every_picture_is_there() -> None:
    for page in DOCS.glob("*.md"):
        for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (DOCS / Path(link)).is_file(), f"{page.name}: {link}"


def test_every_source_file_that_is_named_is_there() -> None:
    for page in ("architecture.md", "algorithm.md", "data.md"):
        for name in re.findall(r"`([\w/]+\.py)`", (DOCS / page).read_text(encoding="utf-8")):
            found = (ROOT / name).is_file() or any((root / name).is_file() for root in SOURCES)
            assert found, f"{page}: {name}"


def test_abbreviations_are_spelled_out_on_every_page() -> None:
    pages = [page for page in DOCS.glob("*.md") if page.name not in RESULTS]
    for page in (*pages, ROOT / "README.md"):
        text = page.read_text(encoding="utf-8")
        for short, meaning in (
            ("DMAC", "Dynamic Multi-branch Agglomerative Clustering"),
            ("SHAPE", "Self-organizing Hierarchical Adaptive Propagation and Evolution"),
        ):
            if re.search(rf"\b{short}\b", text):
                assert meaning in text, f"{page.name}: {short}"
