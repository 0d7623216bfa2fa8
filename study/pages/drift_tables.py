"""Scenarios as Markdown: a table each, and where SOFA-FL does not win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from study.design.contenders import title
from study.design.drift_settings import DRIFTERS, SCENARIOS, SOFA
from study.pages.benchmark_tables import count_leads, gaps_of, not_won
from study.pages.made_by import made_by
from study.pages.markdown import NOTHING, difference, in_percent, table
from study.rows.recovery import (
    Rounds,
    level_before,
    mean_after,
    rounds_to_level,
    rounds_to_truth,
    told,
    total_after,
)
from study.rows.row_files import Row

By = Mapping[str, Sequence[Row]]  # the rows of every contender


def drift_tables(rows: Sequence[Row]) -> str:
    """All scenarios, one under the other."""
    parts = []
    for name, setting in SCENARIOS.items():
        if by := by_label(rows, name):
            made = made_by(row for of in by.values() for row in of)
            parts += [f"### {name}: {setting.title}\n", f"{scenario_table(by)}\n{made}"]
            parts += [words] if (words := not_won(by)) else []
    return "\n".join(parts)


def standing(rows: Sequence[Row]) -> str:
    """How many comparisons SOFA-FL wins, and how many it does not, over all scenarios."""
    places = [by for name in SCENARIOS if (by := by_label(rows, name))]
    return count_leads(places, "a method, a scenario; means since the change")


def by_label(rows: Sequence[Row], setting: str) -> dict[str, list[Row]]:
    """The rows of every contender in a setting, in the contenders' order.

    Of a scenario, `mean` and `min` are the means of the mean and the worst client since the change.
    """
    found: dict[str, list[Row]] = {}
    for label in DRIFTERS:
        here = [row for row in rows if (row["setting"], row["method"]) == (setting, label)]
        if here:
            found[label] = [_with_means(row) for row in here]
    return found


def scenario_table(by: By) -> str:
    """A row per contender."""
    head = ["", "before", "first round after", "mean after", "worst after", "ARI at the end"]
    head += ["rounds to the truth", "to SOFA-FL's level", "to its own", "edits", "moved", "seeds"]
    head += ["SOFA-FL − it: mean after", "worst after"]
    return table(head, [[title(label), *_cells(by, label)] for label in by])


def rounds_to_ours(by: By, label: str) -> list[Rounds]:
    """A contender's rounds to SOFA-FL's level of the same seed, where there is one."""
    levels = {row["seed"]: level_before(row) for row in by.get(SOFA, ())}
    there = [row for row in by[label] if row["seed"] in levels]
    return [rounds_to_level(row, levels[row["seed"]]) for row in there]


def _cells(by: By, label: str) -> list[str]:
    rows = by[label]
    first = rows[0]["changes"][0]
    shares = [
        fmean(level_before(row) for row in rows),
        fmean(row["accuracy"][first] for row in rows),
        *(fmean(row[key] for row in rows) for key in ("mean", "min")),
    ]
    ours = rounds_to_ours(by, label)
    gaps = [gaps_of(by, key).get(label) for key in ("mean", "min")]
    return [
        *map(in_percent, shares),
        f"{fmean(row['ari'][-1] for row in rows):.2f}",
        told([rounds_to_truth(row) for row in rows]),
        told(ours) if ours else NOTHING,
        told([rounds_to_level(row, level_before(row)) for row in rows]),
        *(f"{fmean(total_after(row, key) for row in rows):.1f}" for key in ("edits", "moved")),
        str(len(rows)),
        *("" if label == SOFA else difference(gap) for gap in gaps),
    ]


def _with_means(row: Row) -> Row:
    if not row["changes"]:
        return row
    return {**row, "mean": mean_after(row), "min": mean_after(row, "worst")}
