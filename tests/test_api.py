"""What `sofa_fl.run` does besides what the loop does: a report at the end, which breaks nothing."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import sofa_fl
from sofa_fl.experiment.run import comparison, launch
from sofa_fl.report import page
from tests.experiment.cases import tiny


def test_a_run_from_python_ends_with_its_report(tmp_path: Path) -> None:
    told: list[str] = []
    config = tiny(tmp_path / "run", rounds=1)
    result = sofa_fl.run(config, observers=[lambda event: told.append(event["event"])])
    assert "<!doctype html>" in (result.run / page.REPORT).read_text("utf-8").lower()[:200]
    assert told[-1] == "end", "an observer of the caller's own is told too"


def test_a_report_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_args: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(page, "write_report", fail)
    result = sofa_fl.run(tiny(tmp_path / "run", rounds=1))
    assert (result.run / "summary.json").exists()
    assert [record.getMessage() for record in caplog.records] == [
        "write_report_at_end failed: no room; the run goes on without it"
    ]


def test_they_are_called_as_those_of_the_experiment() -> None:
    assert inspect.signature(sofa_fl.run) == inspect.signature(launch.run)
    assert inspect.signature(sofa_fl.resume) == inspect.signature(launch.resume)
    assert inspect.signature(sofa_fl.compare) == inspect.signature(comparison.compare)
