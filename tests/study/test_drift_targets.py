from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sofa_fl.errors import RunError
from sofa_fl.jobs.runner import Job, OnSummary, Summary
from study.design.run_plan import Scope
from study.drift_targets import chosen, drift
from study.rows.row_files import read_rows
from study.targets import Study
from tests.study.drift_cases import event, write_run
from tests.study.test_drift_rows import SUMMARY

ALIKE = {"groups": {"ari": [1.0]}}


def study_of(folder: Path, seen: list[Job], *methods: str) -> Study:
    """A study whose runs are better the nearer FedDrift's parameter is to 0.3, after the change."""

    def run(jobs: Sequence[Job], what: str, on_summary: OnSummary) -> list[Summary]:
        for job in jobs:
            seen.append(job)
            end = 0.9 - abs(job.config.feddrift.change - 0.3)
            changed = event([[0, 1]], client={"mean": end, "min": 0.1}, **ALIKE)
            if not job.folder.exists():
                write_run(job.folder, job.config, [event([[0, 1]], **ALIKE), *[changed] * 2])
            on_summary(job, SUMMARY)
        return [SUMMARY] * len(jobs)

    scope = Scope(seeds=(0, 1), settings=("swap",), methods=methods, extra={"warmup": 3})
    scope = replace(scope, quick=True)
    return Study(scope=scope, out=folder, run=run, say=print, runs=folder / "runs")


def test_feddrift_is_tuned_first_and_once(tmp_path: Path) -> None:
    seen: list[Job] = []
    study = study_of(tmp_path, seen, "sofa", "feddrift")
    outcome = drift(study)
    assert [job.config.seed for job in seen] == [100] * 3 + [0, 1] * 2
    tried = [job.config.data.score_on for job in seen]
    assert tried == ["validation"] * 3 + ["test"] * 4
    assert {job.config.feddrift.change for job in seen[5:]} == {0.3}
    overrides = [row["overrides"] for row in outcome.rows]
    assert overrides == [{"warmup": 3}] * 2 + [{"feddrift.change": 0.3, "warmup": 3}] * 2
    ends = [row["accuracy"] for row in read_rows(tmp_path / "drift.json")]
    assert ends == [[0.9, 0.9, 0.9]] * 2 + [[0.9, 0.7, 0.7]] * 2
    rows = read_rows(tmp_path / "drift_sweep.json")
    assert [row["mean"] for row in rows] == [0.7, 0.9, 0.2]
    assert "### swap" in outcome.text
    # Choices that are there are not made again; rows are, if that is asked for.
    seen.clear()
    with pytest.raises(RunError, match="already has 4 of these 4 rows"):
        drift(study)
    assert not seen
    drift(replace(study, may_replace=True))
    assert [job.config.seed for job in seen] == [0, 1] * 2
    seen.clear()
    assert drift(replace(study, only_missing=True)).rows == outcome.rows
    assert not seen


def test_without_feddrift_nothing_is_tried(tmp_path: Path) -> None:
    seen: list[Job] = []
    assert chosen(study_of(tmp_path, seen, "sofa")) == {}
    assert not seen
    assert not (tmp_path / "drift_sweep.json").exists()
