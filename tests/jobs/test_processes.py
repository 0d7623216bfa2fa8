"""Jobs side by side: one that fails is told with its traceback, and the others end silently."""

from __future__ import annotations

import os
import queue
import signal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from sofa_fl.errors import RunError
from sofa_fl.jobs.runner import Job, _work, failure, run_jobs
from tests.jobs.test_runner import Log, tiny_jobs


def buggy(folder: Path) -> Job:
    """A job that fails by no fault of the user: it has no configuration."""
    return Job(folder, "the buggy one", None)  # type: ignore[arg-type]


def test_a_bug_is_a_sentence_that_says_where_its_traceback_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs, log = tiny_jobs(tmp_path, 3), Log()
    told = r"the buggy one: AttributeError: 'NoneType' .*; the traceback is in .*error\.txt$"
    with pytest.raises(RunError, match=told):
        run_jobs([buggy(tmp_path / "bug"), *jobs], log, 2)
    text = (tmp_path / "bug" / "error.txt").read_text()
    assert text.startswith("Traceback (most recent call last)")
    assert "run_once" in text
    assert capfd.readouterr().err == ""


class Ended:
    """A queue of news whose reader ends the process as soon as it is told something."""

    def put(self, _news: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def work_on(job: Job) -> None:
    todo: Any = queue.Queue()
    todo.put((0, job))
    _work(todo, Ended(), os.getppid())


def test_a_process_that_is_ended_while_it_tells_of_a_failure_says_no_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    process = get_context("spawn").Process(target=work_on, args=(buggy(tmp_path),))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert capfd.readouterr().err == ""


def test_a_run_that_failed_is_repeated_in_its_folder(tmp_path: Path) -> None:
    """Also if it failed before there was a run."""
    (job,) = tiny_jobs(tmp_path, 1)
    failure(job, ZeroDivisionError("by nothing"))
    assert (job.folder / "error.txt").exists()
    run_jobs([job], Log())
    assert not (job.folder / "error.txt").exists()
    assert (job.folder / "summary.json").exists()


def test_a_traceback_follows_no_link(tmp_path: Path) -> None:
    (job,) = tiny_jobs(tmp_path / "runs", 1)
    job.folder.mkdir(parents=True)
    other = tmp_path / "other"
    other.write_text("mine")
    (job.folder / "error.txt").symlink_to(other)
    assert failure(job, ValueError("one\ntwo")).startswith("ValueError: one; the traceback is in ")
    assert other.read_text() == "mine"


def test_a_traceback_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = failure(buggy(tmp_path / "file" / "folder"), ValueError("a bug"))
    assert told == "\nValueError: a bug\n"
