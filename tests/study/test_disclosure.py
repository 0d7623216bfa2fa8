"""What sharing brings by what it discloses: the runs, the table, the figure and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from sofa_fl.experiment.run.launch import PAPER_RATIO
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId
from study.design.disclosure_settings import (
    DEFAULT,
    DISCLOSURE_SETTINGS,
    DISCLOSURES,
    ON_CURVE,
    REFRESHED,
    TO_ALL,
)
from study.design.run_plan import Scope
from study.disclosure_targets import planned
from study.figures.disclosure_figure import draw_disclosure
from study.pages.disclosure_page import disclosure_page
from study.pages.disclosure_tables import DISCLOSURE, disclosure_table, findings
from study.pages.sharing_words import shared
from study.rows.row_files import Row, add_rows
from tests.study.cases import row

FIRST = NodeId(0)
SHARED = {"0%": 0.0, "1%": 0.01, "2%": 0.02, "5%": 0.05, "10%": 0.1, "89%": 0.89}


def runs(setting: str, label: str, gain: float) -> list[Row]:
    told = {"setting": setting, "disclosed": SHARED[label]}
    return [row(label, s, 0.9 + 0.01 * s + gain * (1 + 0.01 * s), **told) for s in range(5)]


def every(setting: str, gain: float) -> list[Row]:
    return [r for label, share in SHARED.items() for r in runs(setting, label, gain * share)]


def test_runs_differ_in_what_is_shared_alone() -> None:
    scope = Scope(settings=tuple(DISCLOSURE_SETTINGS), methods=tuple(DISCLOSURES), seeds=(0,))
    entries = planned(scope)
    assert len(entries) == 2 * 8
    for name in DISCLOSURE_SETTINGS:
        here = {entry.method: entry.config for entry in entries if entry.setting == name}
        assert len({(c.data, c.model, c.local, c.sofa, c.rounds) for c in here.values()}) == 1
        for label in ON_CURVE[:-1]:
            sharing = here[label].sharing
            assert sharing.ratio == sharing.cap_of(FIRST) == SHARED[label]
        assert (here["89%"].sharing.ratio, here["89%"].sharing.cap_of(FIRST)) == (0.1, 1.0)
        assert here[TO_ALL].sharing.cap_of(FIRST) == here[REFRESHED].sharing.cap_of(FIRST) == 0.05
        ratio = here[REFRESHED].sharing.ratio
        assert isinstance(ratio, float)
        assert 1 - (1 - ratio) ** 21 == pytest.approx(0.05)


def test_the_default_is_what_the_package_does() -> None:
    assert DEFAULT in ON_CURVE
    assert SharingConfig(ratio=PAPER_RATIO).cap_of(FIRST) == SHARED[DEFAULT]


def test_the_table_marks_the_default_and_what_each_share_keeps() -> None:
    text = disclosure_table(every("S2", 0.02))
    assert "| **10% (the default)** | 10.0% | 92.20 ± 1.97 |" in text
    assert "| 0% | 0.0% | 92.00 ± 1.96 | 82.00 ± 1.96 | – | – |" in text
    assert "S1" not in text
    said = findings(every("S2", 0.02) + every("S1", 0.0))
    assert "S2, mean client: without a cap, sharing changes it by +1.82 ± 0.03 points" in said
    assert "11% of that at 10%" in said
    assert "S2, mean client: with a cap, 10% brings most, +0.20 ± 0.00." in said
    assert "S1, worst client: without a cap, sharing changes it by +0.00" in said
    assert "could be chance" in said


def test_headings_say_what_was_disclosed() -> None:
    assert shared([row("sofa", disclosed=0.1)]) == "0.1 shared every round, 10% disclosed"
    assert shared([row("sofa")]) == "0.1 shared every round, 89% disclosed"
    assert shared([row("sofa", sharing=0.0)]) == ""


def test_the_figure_has_a_panel_per_setting_and_the_default(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw_disclosure(every("S1", 0.0) + every("S2", 0.02), tmp_path / f"{name}.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert text.count("the default<") == 2
    for words in ("worst client", "mean client", ">89<"):
        assert words in text


def test_the_page_says_what_there_is(tmp_path: Path) -> None:
    text = disclosure_page(tmp_path, tmp_path)
    assert "no results yet: `python -m study disclosure`" in text
    add_rows(tmp_path / DISCLOSURE, every("S2", 0.02))
    text = disclosure_page(tmp_path, tmp_path)
    assert "## Once, refreshed, or to all" in text
    assert "\n\n\n" not in text
