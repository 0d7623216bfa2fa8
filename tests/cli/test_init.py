from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.cli.cases import Cli, assert_refused


def test_what_it_writes_runs_as_it_is(
    cli: Cli, work_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = cli("init", "my project")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("to try it, run: cd 'my project' && python train.py\n")
    monkeypatch.chdir(work_dir / "my project")
    runpy.run_path("train.py", run_name="__main__")
    out = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in out[:-1]] == [f"round {i}" for i in range(11)]
    assert float(out[-1].split()[2].rstrip(";")) > 0.75
    assert Path("run", "summary.json").exists()
    assert Path("root.safetensors").exists()

    runpy.run_path("train.py", run_name="__main__")  # nothing is left to do
    assert capsys.readouterr().out.splitlines() == out[-1:]


def test_nothing_is_written_over(cli: Cli, work_dir: Path) -> None:
    (work_dir / "train.py").write_text("mine")
    assert_refused(cli("init"), "train.py already exists")
    assert [path.name for path in work_dir.iterdir()] == ["train.py"]
    (work_dir / "file").write_text("")
    assert_refused(cli("init", "file/inside"), "cannot create the folder")
