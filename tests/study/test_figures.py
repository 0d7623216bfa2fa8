"""Figures are drawn from what is kept alone, and twice the same."""

from __future__ import annotations

from pathlib import Path

from study.figures.benchmark_figure import draw_benchmark, lowest_shown
from study.figures.paper_figures import draw_figures
from study.rows.figure_data import read_figures, write_figures
from tests.study.cases import row, rows

EVENT = {
    "round": 2,
    "rounds": 2,
    "client": {"mean": 0.9, "min": 0.8},
    "accuracies": [0.8, 0.9, None],
    "path_loss": {},
    "tree": {"3": None, "0": 3, "1": 3, "2": 3},
    "pools": {},
}
DATA = {
    "clients": {
        "seed": 0,
        "accuracies": {"sofa": [0.9, 0.8, None], "hypcluster": [0.7, 0.9, None]},
    },
    "losses": {
        "seed": 0,
        "curves": {
            "no sharing": [[2.0, 1.0], [1.2, 0.8]],
            "sofa_paper: no sharing": [[2.0, 1.0], [1.2, 0.8]],
            "0.2, fixed": [[2.0, 1.0], [1.2, 0.8]],
        },
    },
    "tree": {"method": "sofa", "data": "mnist", "seed": 0, "event": EVENT},
}


def test_figures_are_drawn_twice_the_same(tmp_path: Path) -> None:
    write_figures(tmp_path, {"clients": None})
    write_figures(tmp_path, DATA)
    assert read_figures(tmp_path) == DATA
    files = draw_figures(read_figures(tmp_path), tmp_path / "a")
    assert [file.name for file in files] == [
        "clients.svg", "losses-none.svg", "losses-fixed-0.2.svg", "tree.svg"
    ]  # fmt: skip
    again = draw_figures(read_figures(tmp_path), tmp_path / "b")
    assert [a.read_bytes() for a in files] == [b.read_bytes() for b in again]
    text = files[0].read_text()
    assert "SOFA-FL, mean 85.00%" in text  # text stays text
    assert "<dc:date>" not in text


def test_a_loss_figure_has_a_panel_per_contender_that_ran(tmp_path: Path) -> None:
    _, none, fixed, _ = draw_figures(DATA, tmp_path)
    assert ">Without partial data sharing (seed 0)<" in none.read_text()
    assert ">SOFA-FL as written<" in none.read_text()
    assert ">SOFA-FL as written<" not in fixed.read_text()
    assert all(">SOFA-FL<" in file.read_text() for file in (none, fixed))


def test_the_benchmark_is_drawn_with_one_seed_and_with_many(tmp_path: Path) -> None:
    many = [*rows("sofa", [0.9, 0.91]), *rows("local", [0.5, 0.52]), *rows("fedavg", [0.88, 0.89])]
    draw_benchmark([*many, row("sofa", setting="S4", sharing=0.0)], tmp_path / "b.svg")
    text = (tmp_path / "b.svg").read_text()
    for words in ("S1", "S4", "Local", "worst client"):
        assert f">{words}<" in text


def test_a_panel_ends_before_a_wide_gap() -> None:
    assert lowest_shown([98, 97, 96, 95, 75, 74, 73, 72]) == 95
    assert lowest_shown([98, 97, 96, 95, 94, 93, 92, 91]) == 93  # three quarters, and no more
    assert lowest_shown([98, 60]) == 98
    assert lowest_shown([98]) == 98
