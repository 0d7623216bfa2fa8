"""The README's Python runs as it stands, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sofa_fl.cli.main import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
    accuracy, depth, folder = capsys.readouterr().out.split()
    stated = re.search(r"prints an accuracy of ([\d.]+) and a tree of depth (\d)", README)
    assert stated is not None
    assert float(accuracy) == pytest.approx(float(stated[1]), abs=0.01)
    assert depth == stated[2]
    assert (tmp_path / folder / "summary.json").is_file()


def test_the_commands_exist() -> None:
    commands = set(re.findall(r"^sofa-fl (\w+)", README, re.MULTILINE))
    assert commands
    for command in commands:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


def test_every_linked_file_is_there() -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link
