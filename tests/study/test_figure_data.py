"""Pieces of figures are added to those that are there; only what is missing is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sofa_fl.errors import RunError
from sofa_fl.experiment.run.config import config_to_dict
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.jobs.runner import Job, OnSummary, Summary
from study.design import run_plan
from study.design.contenders import TABLE2
from study.design.run_plan import Scope
from study.rows.figure_data import CLIENTS, LOSSES, read_figures, write_figures
from study.rows.row_files import add_rows, read_rows
from study.targets import Study, table2
from tests.study.cases import row
from tests.study.test_row_files import SUMMARY

CURVE = [[2.0, 1.0], [1.5, 0.5]]


def study_of(folder: Path, seen: list[Job], **more: Any) -> Study:
    """A study whose runs write the same two rounds."""

    def run(jobs: Sequence[Job], what: str, on_summary: OnSummary) -> list[Summary]:
        for job in jobs:
            seen.append(job)
            if not job.folder.exists():
                made = RunFolder.create(job.folder, config_to_dict(job.config))
                for losses in CURVE:
                    made.append({"event": "round", "local_loss": losses})
                made.summary_file.write_text(json.dumps(SUMMARY))
            on_summary(job, SUMMARY)
        return [SUMMARY] * len(jobs)

    scope = Scope(seeds=(0, 1))
    return Study(scope=scope, out=folder, run=run, say=print, runs=folder / "runs", **more)


def test_a_table_keeps_the_pieces_of_its_first_seed(tmp_path: Path) -> None:
    seen: list[Job] = []
    table2(study_of(tmp_path, seen))
    assert len(seen) == 2 * 2 * len(TABLE2)
    losses = read_figures(tmp_path)["losses"]
    assert losses["seed"] == 0
    labels = [*(f"sofa_paper: {sharing}" for sharing in TABLE2), *TABLE2]
    assert losses["curves"] == dict.fromkeys(labels, CURVE)


def test_what_is_there_stays_and_only_what_is_missing_is_run(tmp_path: Path) -> None:
    """Rows and curves of other machines are used, though their runs are not here."""
    old = [[3.0], [2.0]]
    names = [name for name in TABLE2 if name != "0.2, fixed"]
    write_figures(tmp_path, {"losses": {"seed": 0, "curves": dict.fromkeys(names, old)}})
    entries = run_plan.table2(Scope(seeds=(0, 1)), {})
    there = [row(e.method, e.seed, sharing=e.sharing, overrides=dict(e.overrides)) for e in entries]
    add_rows(tmp_path / "table2.json", there)
    before = read_rows(tmp_path / "table2.json")
    seen: list[Job] = []
    table2(study_of(tmp_path, seen, only_missing=True))
    # All rows are there; of ours one curve is missing, and of SOFA-FL as written all are.
    assert [job.config.seed for job in seen] == [0] * 5
    assert read_rows(tmp_path / "table2.json") == before
    curves = read_figures(tmp_path)["losses"]["curves"]
    assert {name: curves[name] for name in names} == dict.fromkeys(names, old)
    assert curves["0.2, fixed"] == curves["sofa_paper: no sharing"] == CURVE


def test_a_table_of_other_seeds_leaves_the_figure(tmp_path: Path) -> None:
    kept = {"losses": {"seed": 7, "curves": {"no sharing": CURVE}}}
    write_figures(tmp_path, kept)
    table2(study_of(tmp_path, []))
    assert read_figures(tmp_path) == kept


def test_pieces_of_another_seed_are_dropped() -> None:
    data = {"losses": {"seed": 0, "curves": {"no sharing": CURVE}}}
    assert LOSSES.labels(data, 0) == {"no sharing"}
    assert LOSSES.labels(data, 1) == CLIENTS.labels(data, 0) == set()
    assert LOSSES.add(data, 1, {}) == {"losses": {"seed": 1, "curves": {}}}
    assert LOSSES.add(data, 0, {}) == data


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        read_figures(tmp_path)
