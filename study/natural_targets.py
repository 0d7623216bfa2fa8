"""The target `natural`: it makes its runs, and adds a row per run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import fmean

from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.jobs.runner import Summary
from study.design.natural_plan import natural as planned
from study.design.run_plan import Entry
from study.pages.natural_tables import NATURAL, natural_tables
from study.rows.row_files import Row, add_rows, read_rows
from study.targets import Outcome, Study, summary_row


def natural(study: Study) -> Outcome:
    """All contenders on all natural federations."""
    file, entries = study.out / NATURAL, planned(study.scope)
    if not entries:
        study.say(f"note: none of these methods runs in these settings: no row for {file.name}")
    save = partial(add_rows, file)
    rows = study.run_missing(entries, file.stem, save, read_rows(file), natural_row)
    return Outcome((file,), tuple(rows), natural_tables(read_rows(file)))


def natural_row(entry: Entry, summary: Summary, folder: Path) -> Row:
    """A row as the benchmark's, and means over the rounds since the data changed, if they do."""
    row, scenario = summary_row(entry, summary, folder), entry.config.data.scenario
    if scenario.name == "none":
        return row
    later = [e["client"] for e in RunFolder.open(folder).events() if e["round"] >= scenario.at]
    since = {"since": fmean(c["mean"] for c in later), "since_min": fmean(c["min"] for c in later)}
    return {**row, **since}
