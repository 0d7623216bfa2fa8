"""The table of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from textwrap import fill
from types import MappingProxyType
from typing import Any

from rich.table import Table
from rich.text import Text

from sofa_fl.cli.screen import console, shell
from sofa_fl.cli.show import plain_table
from sofa_fl.errors import printable
from sofa_fl.experiment.storage.events import metric_of
from sofa_fl.report.intervals import Summary, by_title, interval_of, paired_differences
from sofa_fl.report.words import number, plus_note, scores_title, table_score

# What is shown of a method, and which end of it is better.
Column = tuple[str, str, int]
COLUMNS: tuple[Column, ...] = (
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
    summaries: Sequence[Summary], folder: Path, page: Path | None = None, note: str = ""
) -> None:
    """One row per method, the mean over its seeds; the best value of a column is bold.

    Then a `note` on the methods, by default on what a `+` means; the differences by seed, where the
    runs are, and their `page` if there is one.
    """
    screen = console()
    rows = average(summaries)
    seeds = sorted({summary["seed"] for summary in summaries})
    over = (
        f"seed {seeds[0]}" if len(seeds) == 1 else f"mean over seeds {', '.join(map(str, seeds))}"
    )
    rounds, metric = number(summaries[0]["rounds"], "round"), metric_of(summaries[0])
    columns = [column for column in COLUMNS if all(column[0] in row for row in rows.values())]
    named = [([title], row) for title, row in rows.items()]
    spread = half_widths(summaries, metric)
    table = scores_table(f"{rounds}, {over}", [""], columns, named, metric, spread)
    table.columns[0].justify = "left"
    screen.print(table)
    screen.print()
    if told := note or plus_note(rows):
        screen.print(Text(fill(told, 80)))
    for line in paired_lines(summaries, metric):
        screen.print(Text(line), soft_wrap=True)
    if len({row["samples_trained"] for row in rows.values()}) > 1:
        screen.print(Text("The budgets differ: not all trained on the same number of samples."))
    screen.print(Text.assemble(("Runs    ", "bold"), shell(folder)), soft_wrap=True)
    if page is not None:
        where = Text.assemble(("Report  ", "bold"), shell(page), ("  open it in a browser", "dim"))
        screen.print(where, soft_wrap=True)


def scores_table(
    what: str,
    labels: Sequence[str],
    columns: Sequence[Column],
    rows: Sequence[tuple[Sequence[str], Mapping[str, Any]]],
    metric: str,
    spread: Mapping[str, str] = MappingProxyType({}),
) -> Table:
    """A row of scores under its labels; the best of a column is bold.

    `spread` follows the mean in the row with these labels.
    """
    title = f"{scores_title(metric)}{f', {what}' if what else ''}"
    table = plain_table(title, [*labels, *(name for _, name, _ in columns)])
    known = {key: [row[key] for _, row in rows if row[key] is not None] for key, *_ in columns}
    best = {
        key: max(better * value for value in known[key])
        for key, _, better in columns
        if better and known[key]
    }
    for names, row in rows:
        cells = [
            Text(
                cell_text(key, row[key], metric)
                + (spread.get(" ".join(names), "") if key == "mean" else ""),
                style="bold" if key in best and row[key] == better * best[key] else "",
            )
            for key, _, better in columns
        ]
        table.add_row(*(Text(printable(name)) for name in names), *cells)
    return table


def average(summaries: Sequence[Summary]) -> dict[str, dict[str, float]]:
    """Every shown value that its runs have by the method's title, the mean over seeds."""
    rows = {}
    for title, found in by_title(summaries).items():
        values = [{**summary["client"], **summary} for summary in found]
        keys = [key for key, _, _ in COLUMNS if all(key in each for each in values)]
        rows[title] = {key: mean(_value(each, key) for each in values) for key in keys}
    return rows


def _value(summary: Summary, key: str) -> float:
    """NaN for what was not scored."""
    value = summary[key]
    return float("nan") if value is None else value


def half_widths(summaries: Sequence[Summary], metric: str) -> dict[str, str]:
    """` ±0.20` after the mean of a method that was run with several seeds: a 95% interval."""
    found = {
        title: interval_of([summary["client"]["mean"] for summary in group]).half_width
        for title, group in by_title(summaries).items()
    }
    return {t: f" ±{table_score(w, metric)}" for t, w in found.items() if w is not None}


def paired_lines(summaries: Sequence[Summary], metric: str) -> Iterator[str]:
    """How each method's mean over its clients differs from the first method's, seed by seed."""
    first = next(iter(by_title(summaries)))
    for title, found in paired_differences(summaries).items():
        gap, error = (table_score(value, metric) for value in (found.mean, found.half_width))
        sign = "+" if found.mean > 0 else ""
        names = f"{printable(title)} against {printable(first)}"
        yield f"{names}, seed by seed: {sign}{gap} ± {error} (95% interval)"


def cell_text(key: str, value: float, metric: str) -> str:
    """A value as the table shows it."""
    if key == "samples_trained":
        return f"{value:,.0f}"
    plain = key == "seconds"
    return f"{value:.1f}" if plain else table_score(value, metric)
