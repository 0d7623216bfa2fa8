"""The target `tree`: the experiment in which only the tree varies."""

from __future__ import annotations

from functools import partial

from study.design.run_plan import Entry, Scope, make_entry
from study.design.tree_settings import TREES
from study.pages.tree_tables import TREE, tree_tables
from study.rows.row_files import add_rows, read_rows
from study.targets import Study, TargetResult


def tree(study: Study) -> TargetResult:
    """SOFA-FL with every given tree, in every federation, with every seed."""
    file = study.out / TREE
    rows = study.run_missing(
        planned(study.scope), "trees", partial(add_rows, file), read_rows(file)
    )
    return TargetResult((file,), tuple(rows), tree_tables(read_rows(file)))


def planned(scope: Scope) -> list[Entry]:
    """The runs that are asked for."""
    return [
        make_entry(scope, setting, TREES[label], 0.0, seed, {})
        for setting in scope.settings
        for label in scope.methods
        for seed in scope.seeds
    ]
