"""The published page is what the published results make of it."""

from __future__ import annotations

from pathlib import Path

from study.figures.drift_figure import draw_drift, shown_of
from study.pages.drift_page import DRIFT, FAULTS, TRIED, drift_page
from study.pages.drift_tables import by_label
from study.rows.row_files import Row, add_rows
from tests.study.drift_cases import drifting, faulty, still

GIVEN = {"local.precision": "bf16"}


def rows_of_all() -> list[Row]:
    changed = {**GIVEN, "feddrift.change": 0.3}
    return [
        drifting("sofa", overrides=GIVEN),
        drifting("sofa", 1, overrides=GIVEN),
        drifting("fedavg", after=[0.2] * 4, overrides=GIVEN),
        drifting("feddrift", overrides=changed),
        drifting("sofa", setting="recur", changes=[3, 5], overrides=GIVEN),
        still("sofa", overrides=GIVEN),
    ]


def test_without_rows_it_says_how_to_get_them(tmp_path: Path) -> None:
    text = drift_page(tmp_path, tmp_path)
    assert "no results yet: `python -m study drift`" in text


def test_the_page_has_what_there_is_and_how_it_came_about(tmp_path: Path) -> None:
    add_rows(tmp_path / DRIFT, rows_of_all())
    text = drift_page(tmp_path, tmp_path)
    assert "\npython -m study drift --seeds 0,1 --set local.precision=bf16 --replace\n" in text
    assert "Engine: stacked.\nAll runs have `local.precision=bf16`.\n" in text
    for words in ("### Recovery in time", "### Where nothing changes", "### recur: ", "- groups: "):
        assert words in text
    for words in ("## Clients that fail", "### Newcomers", "drift.svg", "chosen by"):
        assert words not in text
    tried = {"setting": "swap", "method": "feddrift", "sharing": 0.0, "seed": 100}
    add_rows(tmp_path / TRIED, [{**tried, "overrides": {}, "mean": 0.9, "min": 0.8}])
    add_rows(tmp_path / FAULTS, [faulty("clean/mean"), faulty("nan/mean"), faulty("partial")])
    (tmp_path / "images").mkdir()
    draw_drift(rows_of_all(), tmp_path / "images" / "drift.svg")
    text = drift_page(tmp_path, tmp_path)
    assert "validation data of seed 100 (" in text
    assert "| FedDrift | feddrift.change=0.3 |" in text
    assert "](images/drift.svg)" in text
    for words in (
        "### Bad updates",
        "### Partial participation, dropouts and stragglers",
        "All rows: precision not recorded",
    ):
        assert words in text
    assert "\npython -m study faults --seeds 0 --replace\n" in text
    assert "\n\n\n" not in text


def test_the_figure_is_drawn_twice_the_same_and_names_who_is_far_below(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.svg", "b.svg")]
    for file in files:
        draw_drift(rows_of_all(), file)
    assert files[0].read_bytes() == files[1].read_bytes()
    text = files[0].read_text()
    for words in ("swap", "recur", "SOFA-FL", "below: FedAvg 20.0"):
        assert f">{words}<" in text
    assert shown_of(by_label(rows_of_all(), "swap")) == ["sofa", "feddrift"]
