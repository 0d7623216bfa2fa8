"""The published pages are what the published results make of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sofa_fl.errors import RunError
from study.design.contenders import FULL
from study.pages.page_parts import common
from study.pages.results_page import (
    compact_table,
    results_page,
    with_results,
    write_pages,
)
from study.rows.figure_data import write_figures
from study.rows.row_files import add_rows
from tests.study.cases import row, rows

BEGIN, END = "<!-- results -->", "<!-- /results -->"
ROOT = Path(__file__).parent.parent.parent


def test_the_best_of_the_others_is_named() -> None:
    made = compact_table(
        [row("sofa"), row("fedavg", mean=0.8), row("ditto", mean=0.95), row("fedavg_ft+", mean=0.7)]
    )
    assert "| **" not in made
    assert "90.00 / 80.00 | 80.00 / 70.00 | Ditto **95.00 / 85.00** | FedAvg, tuned+ 70.00" in made
    assert "–" in compact_table([row("sofa")])


def test_only_what_is_between_the_markers_changes(tmp_path: Path) -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_results(text, tmp_path) == f"before\n{BEGIN}\n{END}\nafter\n"
    add_rows(tmp_path / "benchmark.json", [row("sofa")])
    changed = with_results(text, tmp_path)
    assert "old" not in changed
    assert changed.startswith("before\n")
    assert changed.endswith("after\n")
    assert with_results(changed, tmp_path) == changed
    assert with_results("no markers", tmp_path) == "no markers"
    with pytest.raises(RunError, match="results"):
        with_results(BEGIN, tmp_path)


def test_what_all_were_given_is_told() -> None:
    given = {"local.precision": "tf32", "local.learning_rate": 0.002}
    both = [row("sofa", overrides=given), row("fedavg", overrides={**given, "fedprox.pull": 1})]
    assert common(both) == {"local.precision": "tf32"}
    assert common([*both, row("ditto")]) == {}


def test_the_commands_are_those_that_made_the_rows(tmp_path: Path) -> None:
    given = {"local.precision": "bf16"}
    add_rows(tmp_path / "ablation.json", rows(FULL, [0.9, 0.8], overrides=given))
    chosen = {"setting": "S1", "method": "fedavg", "sharing": 0.1, "seed": 0, "seeds": [100]}
    add_rows(tmp_path / "choices.json", [{**chosen, "overrides": {}, "of": 2}])
    tried = {**chosen, "overrides": {}, "extra": {"warmup": 3}}
    add_rows(tmp_path / "sweep.json", [tried])
    add_rows(tmp_path / "table2.json", rows("no sharing", [0.9, 0.8]))
    text = results_page(tmp_path, tmp_path)
    assert "\nThe runs of ablation have `local.precision=bf16`.\n" in text
    assert "\npython -m study table2 --replace\n" in text
    assert "\npython -m study sweep --seeds 100 --set warmup=3 --replace\n" in text
    assert "\npython -m study ablation --set local.precision=bf16 --replace\n" in text
    assert "(the paper's), 0.1 shared every round, 89% disclosed**" in text
    assert "seed 100, by the mean client" in text


def test_the_page_has_what_there_is(tmp_path: Path) -> None:
    assert "no results yet" in results_page(tmp_path, tmp_path)
    add_rows(tmp_path / "benchmark.json", [*rows("sofa", [0.9, 0.8]), *rows("fedavg", [0.7, 0.7])])
    add_rows(tmp_path / "table2.json", [row("no sharing")])
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "losses-none.svg").write_text("<svg/>")
    write_figures(tmp_path, {"losses": {"seed": 0, "curves": {"no sharing": [[1.0], [1.0]]}}})
    (page,) = write_pages(tmp_path, tmp_path, None)
    text = page.read_text(encoding="utf-8")
    for words in (
        "second table",
        "](images/losses-none.svg)",
        "No hyperparameters were chosen",
        "S1",
    ):
        assert words in text
    assert "first table" not in text
    assert "\npython -m study table2 --replace\n" in text
    assert "*Without partial data sharing. Local loss, mean over all clients" in text
    assert "clients.svg" not in text
    assert "\n\n\n" not in text
