from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sofa_fl.jobs.runner import Job, OnSummary, Summary
from study import tuning as sweeping
from study.design.choices import best_choices, choices_table, read_choices, words
from study.design.run_plan import Scope
from study.rows.row_files import Row, read_rows
from study.targets import Study
from study.tuning import sweep
from tests.study.test_row_files import SUMMARY


def tried(rate: float, seed: int, mean: float, worst: float = 0.5) -> Row:
    overrides = {"local.learning_rate": rate}
    row: Row = {"setting": "S1", "method": "fedavg", "sharing": 0.1, "seed": seed}
    return {**row, "mean": mean, "min": worst, "overrides": overrides}


def test_the_best_mean_over_the_seeds_is_chosen_then_the_best_worst() -> None:
    rows = [tried(1e-3, 100, 0.9), tried(1e-3, 101, 0.7), tried(2e-3, 100, 0.8)]
    (best,) = best_choices([*rows, tried(2e-3, 101, 0.81)]).values()
    assert (best["overrides"], best["of"]) == ({"local.learning_rate": 2e-3}, 2)
    assert best["seeds"] == [100, 101]
    (tie,) = best_choices([tried(1e-3, 100, 0.9, 0.5), tried(2e-3, 100, 0.9, 0.6)]).values()
    assert tie["overrides"] == {"local.learning_rate": 2e-3}


def test_rates_first_then_the_own_parameters_at_the_best_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "VALIDATION", {"data.num_test": 10})  # any key that there is
    seen: list[tuple[float, float]] = []

    def run(jobs: Sequence[Job], what: str, on_summary: OnSummary) -> list[Summary]:
        summaries = []
        for job in jobs:
            assert job.config.data.num_test == 10
            rate, pull = job.config.local.learning_rate, job.config.fedprox.pull
            seen.append((rate, pull))
            mean = 0.9 - abs(rate - 2e-3) - abs(pull - 0.1) / 100
            summaries.append({**SUMMARY, "client": {**SUMMARY["client"], "mean": mean}})
            on_summary(job, summaries[-1])
        return summaries

    scope = Scope(seeds=(100,), settings=("S1",), methods=("fedprox",), extra={"warmup": 3})
    outcome = sweep(Study(scope=scope, out=tmp_path, run=run, say=print, runs=tmp_path))
    per_sharing = [(1e-3, 0.01), (2e-3, 0.01)], [(2e-3, 1e-3), (2e-3, 0.1)]
    assert seen == [*per_sharing[0] * 2, *per_sharing[1] * 2]
    chosen = {"local.learning_rate": 2e-3, "fedprox.pull": 0.1}
    assert read_choices(tmp_path) == {("S1", "fedprox", s): chosen for s in (0.0, 0.1)}
    assert [row["of"] for row in outcome.rows] == [4, 4]
    rows = read_rows(tmp_path / "sweep.json")
    assert len(rows) == 8
    assert set(rows[0]) == {
        "setting", "method", "sharing", "seed", "mean", "min", "overrides", "extra"
    }  # fmt: skip
    assert rows[0]["extra"] == {"warmup": 3}
    # All of it is there: with other runs to make, none of these is made again.
    seen.clear()
    study = Study(scope=scope, out=tmp_path, run=run, say=print, runs=tmp_path, only_missing=True)
    assert sweep(study).rows == outcome.rows
    assert not seen
    assert "FedProx | pull 0.1, rate 0.002 | 4" in choices_table(outcome.rows)


def test_the_table_tells_nothing_to_choose_from_not_chosen() -> None:
    given = {"of": 2, "overrides": {"hypcluster.num_clusters": 2}}
    keys = [("S1", "hypcluster+", 0.1), ("S5", "hypcluster+", 0.0), ("S4", "fedavg", 0.0)]
    rows = [dict(zip(("setting", "method", "sharing"), key), **given) for key in keys]
    lines = choices_table(rows).splitlines()
    assert "| HypCluster+ | – / num_clusters 2 |  | num_clusters 2 | 2 |" in lines


def test_words() -> None:
    assert words({"local.learning_rate": 1e-3, "hypcluster.num_clusters": 2}) == (
        "rate 0.001, num_clusters 2"
    )
