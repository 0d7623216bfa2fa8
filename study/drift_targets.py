"""The targets `drift` and `faults`: they make their runs, and add a row per run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from sofa_fl.jobs.runner import Summary
from study.design import drift_plan
from study.design.choices import Choices, best_choices, key_of
from study.design.run_plan import Entry
from study.pages.drift_page import DRIFT, FAULTS, TRIED, own_of
from study.pages.drift_tables import drift_tables
from study.pages.faults_tables import faults_tables
from study.rows.drift_rows import drift_row, faults_row, rounded
from study.rows.row_files import Row, add_rows, read_rows
from study.targets import RowOf, Study, TargetResult, whole_key


def drift(study: Study) -> TargetResult:
    """All scenarios, and settings in which nothing changes; FedDrift is tuned first."""
    file = study.out / DRIFT
    entries = drift_plan.drift(study.scope, chosen(study))
    return _made(study, file, entries, drift_row, drift_tables)


def faults(study: Study) -> TargetResult:
    """SOFA-FL without and with every fault."""
    file = study.out / FAULTS
    entries = drift_plan.faults(study.scope)
    return _made(study, file, entries, faults_row, faults_tables)


def chosen(study: Study) -> Choices:
    """The best on validation data; what was tried before is not repeated."""
    entries = drift_plan.trials(study.scope)
    if not entries:
        return {}
    file = study.out / TRIED
    save = partial(add_rows, file, key=_trial_key)
    once = replace(study, only_missing=True)
    rows = once.run_missing(
        entries, "choices for drift", save, read_rows(file), tried_row, whole_key
    )
    return {key: own_of(row) for key, row in best_choices(rows).items()}


def tried_row(entry: Entry, summary: Summary, folder: Path) -> Row:
    """What the choice depends on: means over the rounds after the change."""
    row = drift_row(entry, summary, folder)
    first = row["changes"][0]
    return {
        **{key: value for key, value in entry.keys.items() if key != "overrides"},
        "overrides": row["overrides"],
        "mean": rounded(fmean(row["accuracy"][first:])),
        "min": rounded(fmean(row["worst"][first:])),
    }


def _made(
    study: Study,
    file: Path,
    entries: Sequence[Entry],
    row_of: RowOf,
    render: Callable[[Sequence[Row]], str],
) -> TargetResult:
    if not entries:
        study.say(f"note: none of these methods runs in these settings: no row for {file.name}")
    save = partial(add_rows, file)
    rows = study.run_missing(entries, file.stem, save, read_rows(file), row_of)
    return TargetResult((file,), tuple(rows), render(read_rows(file)))


def _trial_key(row: Row) -> Sequence[Any]:
    return *key_of(row), json.dumps(row["overrides"]), row["seed"]
