"""Scoring every level at the end: it is counted, it is told, and it can be left out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sofa_fl.api.runs import resume, run
from sofa_fl.cli.show import show_run
from sofa_fl.experiment.run import summary
from sofa_fl.experiment.scoring.metrics import full_accuracies
from sofa_fl.report.history import read_round
from tests.experiment.cases import own_data, tiny


def test_it_is_told_step_by_step_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = full_accuracies

    def slow(*given: Any) -> Any:
        time.sleep(0.4)
        return whole(*given)

    monkeypatch.setattr(summary, "full_accuracies", slow)
    told: list[tuple[int, int]] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "scoring":
            told.append((event["done"], event["of"]))

    result = run(tiny(tmp_path / "run"), data=own_data(), observers=[note])
    num_steps = 1 + len(result.summary["levels"])
    assert told == [(step, num_steps) for step in range(num_steps)]
    last = read_round(result.run)
    assert result.summary["seconds"] > 0.4
    assert last.round == 3


def test_it_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny(tmp_path / "run", score_levels=False)
    result = run(config, data=own_data())
    summary = result.summary
    assert (summary["full"], summary["root"], summary["levels"]) == (None, None, [])
    assert summary["client"]["mean"] > 0
    show_run(summary, read_round(result.run))
    shown = capsys.readouterr().out
    assert "by level" not in shown
    assert "Tree" in shown
    again = resume(result.run, data=own_data())
    assert again.summary["client"] == summary["client"]
