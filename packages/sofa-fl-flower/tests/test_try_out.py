"""One command for a federation on this computer; Flower itself is run by `test_docs.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sofa_fl.errors import ConfigError, RunError
from sofa_fl_flower.flower import try_out as module
from sofa_fl_flower.flower.new_app import new_app
from sofa_fl_flower.flower.server_app import run_folder
from sofa_fl_flower.flower.try_out import environment_of, started_with, try_out


def test_an_app_is_written_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], dict[str, Any]]] = []

    def flwr(command: list[str], **how: Any) -> subprocess.CompletedProcess[bytes]:
        asked.append((command, how))
        run = Path(how["cwd"]) / "runs" / "first"
        run.mkdir(parents=True)
        (run / "summary.json").write_text("{}")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("sofa_fl_flower.flower.try_out.subprocess.run", flwr)
    run = try_out(tmp_path / "clinics", nodes=3, rounds=2)
    assert run == tmp_path / "clinics" / "runs" / "first"
    ((command, how),) = asked
    assert command[1:] == ["run", ".", "--stream", "--run-config", "clients=3"]
    assert how["env"]["FLWR_HOME"] == str(tmp_path / "clinics" / ".flwr")
    first, *_ = how["env"]["PATH"].split(os.pathsep)
    assert first == str(Path(sys.executable).parent), "also if its environment is not activated"
    config = (tmp_path / "clinics" / ".flwr" / "config.toml").read_text()
    assert "num-supernodes = 3" in config
    sofa = yaml.safe_load((tmp_path / "clinics" / "clinics" / "sofa.yaml").read_text())
    assert (sofa["rounds"], sofa["data"]["num_clients"], sofa["model"]["name"]) == (2, 3, "mlp")
    assert sofa["data"]["num_train"] == 1200


def test_a_federation_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr("sofa_fl_flower.flower.try_out.subprocess.run", fail)
    with pytest.raises(RunError, match="failed; its log is above"):
        try_out(tmp_path / "clinics", nodes=2, rounds=1)


def test_a_missing_extra_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install 'sofa-fl-flower\[simulation\]'"):
        try_out(tmp_path / "clinics", nodes=2, rounds=1)
    assert not (tmp_path / "clinics").exists()


def test_only_processes_of_the_app_are_ended(tmp_path: Path) -> None:
    code = "import time; time.sleep(60)"
    ours, other = (
        subprocess.Popen([sys.executable, "-c", code], env=environment_of(tmp_path / name))
        for name in ("ours", "other")
    )
    try:
        found = set(started_with(str(tmp_path / "ours" / ".flwr")))
        assert ours.pid in found
        assert other.pid not in found
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def test_nothing_that_is_written_has_an_absolute_path(tmp_path: Path) -> None:
    app = new_app(tmp_path / "clinics")
    for file in app.rglob("*"):
        if file.is_file():
            assert str(tmp_path) not in file.read_text(encoding="utf-8"), file.name
    with pytest.raises(ConfigError, match="not be a Python keyword, got 'try'"):
        new_app(tmp_path / "try")


def test_a_run_folder_lies_below_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFA_FL_APP", "/srv/clinics")
    assert run_folder("runs/first") == Path("/srv/clinics/runs/first")
    assert run_folder("/data/run") == Path("/data/run")
    monkeypatch.delenv("SOFA_FL_APP")
    assert run_folder("runs/first") == Path("runs/first")
