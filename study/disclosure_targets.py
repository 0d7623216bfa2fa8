"""The target `disclosure`: what sharing brings, by the share of the samples that it discloses."""

from __future__ import annotations

from functools import partial

from study.design.disclosure_settings import DISCLOSURES
from study.design.run_plan import Entry, Scope, make_entry
from study.pages.disclosure_tables import DISCLOSURE, disclosure_table
from study.rows.row_files import add_rows, read_rows
from study.targets import Study, TargetResult


def disclosure(study: Study) -> TargetResult:
    """SOFA-FL at every disclosed share, in every setting, with every seed."""
    file = study.out / DISCLOSURE
    rows = study.run_missing(
        planned(study.scope), "disclosure", partial(add_rows, file), read_rows(file)
    )
    return TargetResult((file,), tuple(rows), disclosure_table(read_rows(file)))


def planned(scope: Scope) -> list[Entry]:
    """The runs that are asked for."""
    return [
        make_entry(scope, setting, DISCLOSURES[label], 0.0, seed, {})
        for setting in scope.settings
        for label in scope.methods
        for seed in scope.seeds
    ]
