from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.events import Event
from sofa_fl.jobs.runner import Job, make_job, run_jobs
from study.design.run_plan import configure
from study.design.settings import QUICK

TINY = {**QUICK, "data.num_clients": 4, "method": "fedavg"}


class Log:
    """What was told, by job."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []

    def __call__(self, index: int, event: Event) -> None:
        self.told.append((index, event["event"]))

    def of(self, kind: str) -> list[int]:
        return [index for index, told in self.told if told == kind]


def tiny_jobs(runs: Path, seeds: int = 2) -> list[Job]:
    return [make_job(configure({**TINY, "seed": s}), f"seed {s}", runs) for s in range(seeds)]


def test_a_folder_is_named_after_what_changes_results(tmp_path: Path) -> None:
    config = configure(TINY)
    folder = make_job(config, "", tmp_path).folder
    assert folder.name.startswith("fedavg-mnist-0-")
    same = [replace(config, out="x"), replace(config, save_every=7)]
    same.append(replace(config, data=replace(config.data, dir="elsewhere")))
    assert {make_job(other, "", tmp_path).folder for other in same} == {folder}
    for key, value in (("seed", 1), ("local.batches", 3), ("sharing.ratio", 0.0)):
        other = make_job(configure({**TINY, key: value}), "", tmp_path)
        assert other.folder != folder


def test_the_folder_of_a_run_that_is_kept_says_what_it_is(tmp_path: Path) -> None:
    config, title = configure(TINY), "data.dir=/some where/é, seed=0"
    job = make_job(config, title, tmp_path, is_kept=True)
    mark = make_job(config, title, tmp_path).folder.name.rsplit("-", 1)[1]
    assert job.folder.name == f"data.dir=_some_where_,seed=0-{mark}"
    assert job.title == title
    assert len(make_job(config, 99 * title, tmp_path, is_kept=True).folder.name) == 111


def test_run_once_then_reuse_then_resume(tmp_path: Path) -> None:
    jobs, log = tiny_jobs(tmp_path), Log()
    first = run_jobs([*jobs, jobs[0]], log)
    assert first[0] == first[2] != first[1]
    assert (log.of("start"), log.of("done")) == ([0, 1], [0, 1])
    assert {path.name for path in jobs[0].folder.iterdir()} == {
        ".lock", "config.yaml", "events.jsonl", "summary.json", "tensorboard"
    }  # fmt: skip
    log = Log()
    assert run_jobs(jobs, log) == first[:2]
    assert log.told == [(0, "done"), (1, "done")]
    # Stopped while it was made: begun anew.
    for name in ("events.jsonl", "summary.json"):
        (jobs[1].folder / name).unlink()
    again = run_jobs(jobs, log)
    assert again[1]["client"] == first[1]["client"]
    (jobs[0].folder / "summary.json").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        run_jobs(jobs, Log())


def test_side_by_side_gives_the_same(tmp_path: Path) -> None:
    log, found = Log(), []
    apart = run_jobs(
        tiny_jobs(tmp_path / "a", 3), log, 2, lambda job, summary: found.append(job.title)
    )
    in_turn = run_jobs(tiny_jobs(tmp_path / "b", 3), Log())
    assert [s["client"] for s in apart] == [s["client"] for s in in_turn]
    assert sorted(log.of("done")) == [0, 1, 2]
    assert sorted(found) == ["seed 0", "seed 1", "seed 2"]


def test_an_error_in_a_process_is_told_with_the_job(tmp_path: Path) -> None:
    jobs = tiny_jobs(tmp_path, 1)
    bad = configure({**TINY, "data.name": "nowhere"})
    with pytest.raises(RunError, match=r"the bad one: unknown dataset 'nowhere'"):
        run_jobs([make_job(bad, "the bad one", tmp_path), *jobs], Log(), 2)
