from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sofa_fl.api.runs import resume, run
from sofa_fl.experiment.tracking.observers import TensorBoard, has_tensorboard, scalars
from tests.experiment.cases import own_data, tiny


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every curve as TensorBoard itself reads it."""
    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    tags = found.Tags()["scalars"]
    return {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in tags}


def test_curves_are_those_of_the_events(tmp_path: Path) -> None:
    folder = run(tiny(tmp_path / "run"), data=own_data()).run
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    curves = points(folder)
    for before, event in zip([None, *events], events):
        for name, value in scalars(event, before).items():
            assert dict(curves[name])[event["round"]] == pytest.approx(value, rel=1e-6)
    assert [step for step, _ in curves["accuracy/mean"]] == [0, 1, 2, 3]
    assert {"accuracy/worst", "loss/local", "tree/levels", "cost/bytes up"} <= curves.keys()


@pytest.mark.parametrize("every", [1, 2])
def test_a_resumed_run_has_every_point_once(tmp_path: Path, every: int) -> None:
    config = tiny(tmp_path / "run", save_every=every)

    def stop(event: dict[str, object]) -> None:
        if event["event"] == "round" and event["round"] == 3:
            raise KeyboardInterrupt

    whole = points(run(tiny(tmp_path / "whole", save_every=every), data=own_data()).run)
    with pytest.raises(KeyboardInterrupt):
        run(config, data=own_data(), observers=[stop])
    (tmp_path / "run" / "checkpoints" / "round-00003.safetensors").unlink()
    (torn,) = (tmp_path / "run" / "tensorboard").iterdir()
    torn.write_bytes(torn.read_bytes()[:-7])
    resume(tmp_path / "run", data=own_data())
    curves = points(tmp_path / "run")
    del curves["cost/seconds"], whole["cost/seconds"]
    assert curves == whole
    (file,) = (tmp_path / "run" / "tensorboard").iterdir()
    assert file.name == torn.name, "the clock goes on"


def test_a_place_that_cannot_be_written_is_told_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TensorBoard, "log", full)
    result = run(tiny(tmp_path / "run"), data=own_data())
    assert result.summary["rounds"] == 3
    (told,) = [record.getMessage() for record in caplog.records if record.name == "sofa_fl"]
    assert told.startswith("TensorBoard failed: [Errno 28] No space")


def test_where_it_is_missing_that_is_told_once_for_all_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # none is found, none imported
    has_tensorboard.cache_clear()
    try:
        for name in ("one", "other"):
            folder = run(tiny(tmp_path / name), data=own_data()).run
            assert not (folder / "tensorboard").exists()
            assert (folder / "summary.json").exists()
    finally:
        has_tensorboard.cache_clear()
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["tensorboard is not installed, so the run writes no TensorBoard curves"]
