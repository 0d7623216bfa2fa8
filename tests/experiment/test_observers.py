from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from sofa_fl.api.runs import resume, run
from sofa_fl.experiment.tracking.observers import guarded
from tests.experiment.cases import events_of, own_data, summary_of, tiny


def test_a_failing_observer_is_told_once_and_the_run_ends_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def drawing(event: dict[str, Any]) -> None:
        raise ZeroDivisionError("no room\nto draw")

    whole = run(tiny(tmp_path / "whole"), data=own_data()).run
    caplog.clear()
    observers = [drawing, lambda event: seen.append(event["event"])]
    run(tiny(tmp_path / "watched"), data=own_data(), observers=observers)
    assert events_of(tmp_path / "watched") == events_of(whole)
    assert summary_of(tmp_path / "watched") == summary_of(whole)
    assert [kind for kind in seen if kind != "scoring"] == ["start", *["round"] * 4, "end"]
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["drawing failed: no room to draw; the run continues without it"]
    resume(whole, data=own_data(), observers=[drawing])


def test_ctrl_c_passes_through(tmp_path: Path) -> None:
    def stop(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tiny(tmp_path / "stopped"), data=own_data(), observers=[stop])


def test_an_error_without_words_has_a_name(caplog: pytest.LogCaptureFixture) -> None:
    class Picture:
        def __call__(self, event: dict[str, Any]) -> None:
            raise MemoryError

    [picture] = guarded([Picture()])
    picture({})
    picture({})
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "Picture failed: MemoryError; the run continues without it"
    ]
