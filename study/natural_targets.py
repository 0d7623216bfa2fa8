"""The targets on natural federations: they make their runs, and add a row per run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.jobs.runner import Summary
from study.design import natural_plan
from study.design.choices import key_of
from study.design.run_plan import Entry
from study.pages.natural_choices import TRIED, chosen_table, read_chosen
from study.pages.natural_parts import WITHOUT, without_tables
from study.pages.natural_tables import NATURAL, natural_tables
from study.rows.row_files import Row, add_rows, read_rows
from study.targets import Study, TargetResult, summary_row, whole_key


def natural(study: Study) -> TargetResult:
    """All contenders on all natural federations, with what was chosen for them."""
    file, entries = study.out / NATURAL, natural_plan.natural(study.scope, read_chosen(study.out))
    if not entries:
        study.say(f"note: none of these methods runs in these settings: no row for {file.name}")
    save = partial(add_rows, file)
    rows = study.run_missing(entries, file.stem, save, read_rows(file), natural_row)
    return TargetResult((file,), tuple(rows), natural_tables(read_rows(file)))


def natural_ablation(study: Study) -> TargetResult:
    """SOFA-FL without each of its parts on some of these federations."""
    file, entries = study.out / WITHOUT, natural_plan.parts(study.scope)
    save = partial(add_rows, file)
    rows = study.run_missing(entries, "without parts", save, read_rows(file))
    return TargetResult((file,), tuple(rows), without_tables(read_rows(file)))


def natural_sweep(study: Study) -> TargetResult:
    """Try the baselines' own parameters on validation data; what was tried is not repeated."""
    file, entries = study.out / TRIED, natural_plan.trials(study.scope)
    if not entries:
        study.say("note: none of these methods has a parameter to choose")
    save = partial(add_rows, file, key=_trial_key)
    once = replace(study, only_missing=True)
    rows = once.run_missing(entries, "choices", save, read_rows(file), tried_row, whole_key)
    return TargetResult((file,), tuple(rows), chosen_table(study.out))


def natural_row(entry: Entry, summary: Summary, folder: Path) -> Row:
    """A row as the benchmark's, and means over the rounds since the data changed, if they do."""
    row, scenario = summary_row(entry, summary, folder), entry.config.data.scenario
    if scenario.name == "none":
        return row
    later = [e["client"] for e in RunFolder.open(folder).events() if e["round"] >= scenario.at]
    since = {"since": fmean(c["mean"] for c in later), "since_min": fmean(c["min"] for c in later)}
    return {**row, **since}


def tried_row(entry: Entry, summary: Summary, folder: Path) -> Row:
    """The part of a row that a choice depends on."""
    row = summary_row(entry, summary, folder)
    return {key: row[key] for key in (*entry.keys, "mean", "min")}


def _trial_key(row: Row) -> Sequence[Any]:
    return *key_of(row), json.dumps(row["overrides"]), row["seed"]
