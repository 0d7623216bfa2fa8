from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.cases import Cli, assert_refused


def test_a_run_ends_with_a_report(finished: Path) -> None:
    text = (finished / "report.html").read_text()
    assert text.startswith("<!doctype html>")
    assert '"name":"run"' in text


def test_one_run(cli: Cli, run_folder: Path) -> None:
    (run_folder / "report.html").unlink()
    result = cli("report", str(run_folder))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"wrote {run_folder}/report.html\n"
    assert (run_folder / "report.html").exists()


def test_somewhere_else(cli: Cli, finished: Path, work_dir: Path) -> None:
    result = cli("report", str(finished), "--out", "my page.html")
    assert result.stderr == "wrote 'my page.html'\n"
    assert (work_dir / "my page.html").exists()


def test_several_runs(cli: Cli, finished: Path, run_folder: Path, work_dir: Path) -> None:
    before = (run_folder / "report.html").read_bytes()
    result = cli("report", str(finished), str(run_folder))
    assert (result.exit_code, result.stderr) == (0, "wrote comparison.html\n")
    assert "2 runs compared" in (work_dir / "comparison.html").read_text()
    assert (run_folder / "report.html").read_bytes() == before


def test_while_the_run_is_going_on(cli: Cli, run_folder: Path) -> None:
    (run_folder / "summary.json").unlink()
    (run_folder / "events.jsonl").unlink()
    assert cli("report", str(run_folder)).exit_code == 0


def test_what_is_no_run_is_refused(cli: Cli, run_folder: Path, work_dir: Path) -> None:
    assert_refused(cli("report", "nowhere"), "nowhere is not a run folder")
    assert_refused(cli("report", str(run_folder), "--out", "no/x.html"), "cannot write no/x.html")
    (run_folder / "events.jsonl").write_text("no json\n")
    assert_refused(cli("report", str(run_folder)), "is damaged")
    assert_refused(cli("report"), "RUN")


def test_a_report_that_fails_is_told_once_and_the_run_ends(
    cli: Cli, tiny: list[str], monkeypatch: pytest.MonkeyPatch, work_dir: Path
) -> None:
    def broken(*_: object) -> str:
        raise RecursionError("the page is\nin pieces")

    monkeypatch.setattr("sofa_fl.report.page.page", broken)
    result = cli("run", *tiny, "--out", "x", "--quiet")
    assert (result.exit_code, result.stdout) == (0, "x\n")
    told = "write_run_report failed: the page is in pieces; the run continues without it"
    assert result.stderr.splitlines() == [f"warning: {told}"]
    assert (work_dir / "x" / "summary.json").exists()
    assert not (work_dir / "x" / "report.html").exists()


def test_progress_that_fails_is_told_once_and_the_run_ends(
    cli: Cli, tiny: list[str], monkeypatch: pytest.MonkeyPatch, work_dir: Path
) -> None:
    def broken(*_: object) -> str:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("sofa_fl.cli.progress.Follower.line", broken)
    result = cli("run", *tiny, "--out", "x")
    assert result.exit_code == 0
    assert result.stderr.count("warning: ") == 1
    assert "No space left on device; the run continues without it" in result.stderr
    assert (work_dir / "x" / "report.html").exists()
