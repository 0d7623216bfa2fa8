"""The page on own problems shows the example as it is, and names only what there is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sofa_fl
from sofa_fl.cli.main import app
from sofa_fl.experiment.run.loop import Experiment
from tests.docs.blocks import command, small
from tests.examples.test_examples import EXAMPLES, LEAST

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "own.md").read_text(encoding="utf-8")


def test_the_page_shows_the_example_as_it_is() -> None:
    block, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    text = (EXAMPLES / "own_csv.py").read_text(encoding="utf-8")
    assert text.endswith(block)


def write_hospitals(folder: Path) -> None:
    """Files with the columns, blanks and categories of UCI's heart disease data."""
    rng = np.random.default_rng(0)
    head = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
    folder.mkdir()
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        cells = rng.integers(0, 4, (40, 14)).astype(str)
        cells[:, :13][rng.random((40, 13)) < 0.1] = ""
        rows = [",".join(row) for row in cells]
        (folder / f"{name}.csv").write_text("\n".join([head, *rows, ""]))


def test_a_folder_of_csv_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and the lines of Python on the page, with fewer rounds."""
    monkeypatch.chdir(tmp_path)
    write_hospitals(tmp_path / "heart")
    shutil.copy("heart/va.csv", "new.csv")
    begin = Experiment.__init__
    monkeypatch.setattr(
        Experiment, "__init__", lambda self, config, own: begin(self, small(config, own), own)
    )
    _, block = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"sofa_fl": sofa_fl}
    exec(block, names)
    assert names["outputs"].shape == (40, 2)
    assert Path("cleveland.onnx").exists()
    (commands,) = re.findall(r"one command runs it:\n\n```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in commands.replace("\\\n", " ").splitlines():
        command(line)
    assert Path("sofa-heart-0-client-cleveland.onnx").exists()


def test_every_name_and_command_is_there() -> None:
    for name in re.findall(r"sofa_fl\.(?!methods`)(\w+)", PAGE):  # that is a group of entry points
        assert name in sofa_fl.__all__, name
    commands = set(re.findall(r"`?sofa-fl (\w+)", PAGE))
    assert {"init", "sweep", "export", "run", "report"} <= commands
    for name in commands:
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0, name


def test_every_linked_file_is_there_and_every_example_is_linked() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", PAGE)
    assert all((ROOT / "docs" / link).exists() for link in links)
    assert {f"../examples/{name}.py" for name in LEAST} <= set(links)
