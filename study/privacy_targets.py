"""The target `privacy`: methods under differential privacy."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sofa_fl.jobs.runner import Summary
from study.design.privacy_settings import PRIVATE, scores_of
from study.design.run_plan import Entry, Scope, make_entry
from study.pages.privacy_tables import PRIVACY, privacy_tables
from study.rows.row_files import Row, add_rows, read_rows
from study.targets import Study, TargetResult, summary_row


def privacy(study: Study) -> TargetResult:
    """Every method in every federation with every budget and seed."""
    file = study.out / PRIVACY
    rows = study.run_missing(
        planned(study.scope), "privacy", partial(add_rows, file), read_rows(file), privacy_row
    )
    return TargetResult((file,), tuple(rows), privacy_tables(read_rows(file)))


def planned(scope: Scope) -> list[Entry]:
    """The runs that are asked for."""
    return [
        make_entry(scope, setting, PRIVATE[label], 0.0, seed, {}, part=scores_of(setting, label))
        for setting in scope.settings
        for label in scope.methods
        for seed in scope.seeds
    ]


def privacy_row(entry: Entry, summary: Summary, folder: Path) -> Row:
    """A row with what was spent, and how well the finest groups were found."""
    row, spent = summary_row(entry, summary, folder), summary["privacy"]
    told = {"epsilon": spent["epsilon"], "spent": spent["spent"], "noise": max(spent["noise"])}
    return {**row, **told, "finest": summary["groups"]["ari"][0]}
