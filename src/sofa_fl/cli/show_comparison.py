"""The table of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from sofa_fl.cli.screen import console, shell
from sofa_fl.cli.show import plain_table
from sofa_fl.experiment.scoring.metric_names import metric_of
from sofa_fl.report.words import number, scores_title, table_score, title_of

# What is shown of a method, and which end of it is better.
COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("mean", "mean", +1),
    ("std", "std", -1),
    ("min", "min", +1),
    ("bottom10", "bottom\n10%", +1),
    ("full", "whole\ntest", +1),
    ("root", "root", +1),
    ("samples_trained", "samples\ntrained", 0),
    ("seconds", "seconds", -1),
)


def show_comparison(
    summaries: Sequence[Mapping[str, Any]], folder: Path, page: Path | None = None
) -> None:
    """One row per method, the mean over its seeds; the best of a column is bold.

    Then where the runs are, and their `page` if there is one.
    """
    screen = console()
    rows = average(summaries)
    seeds = sorted({summary["seed"] for summary in summaries})
    over = (
        f"seed {seeds[0]}" if len(seeds) == 1 else f"mean over seeds {', '.join(map(str, seeds))}"
    )
    rounds, metric = number(summaries[0]["rounds"], "round"), metric_of(summaries[0])
    names = ["", *(name for _, name, _ in COLUMNS)]
    table = plain_table(f"{scores_title(metric)}, {rounds}, {over}", names)
    table.columns[0].justify = "left"
    best = {
        key: max(better * row[key] for row in rows.values()) for key, _, better in COLUMNS if better
    }
    for method, row in rows.items():
        cells = [
            Text(
                written(key, row[key], metric),
                style="bold" if _is(best, key, better * row[key]) else "",
            )
            for key, _, better in COLUMNS
        ]
        table.add_row(Text(title_of(method)), *cells)
    screen.print(table)
    screen.print()
    if len({row["samples_trained"] for row in rows.values()}) > 1:
        screen.print(Text("The budgets differ: not all trained on the same number of samples."))
    screen.print(Text.assemble(("Runs    ", "bold"), shell(folder)), soft_wrap=True)
    if page is not None:
        told = (("Report  ", "bold"), shell(page), ("  open it in a browser", "dim"))
        screen.print(Text.assemble(*told), soft_wrap=True)


def average(summaries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Every shown value by method, the mean over seeds."""
    rows: dict[str, dict[str, float]] = {}
    for method in dict.fromkeys(summary["method"] for summary in summaries):
        values = [{**s["client"], **s} for s in summaries if s["method"] == method]
        rows[method] = {key: sum(v[key] for v in values) / len(values) for key, _, _ in COLUMNS}
    return rows


def written(key: str, value: float, metric: str) -> str:
    if key == "samples_trained":
        return f"{value:,.0f}"
    return f"{value:.1f}" if key == "seconds" else table_score(value, metric)


def _is(best: Mapping[str, float], key: str, value: float) -> bool:
    return key in best and value == best[key]
