"""A tiny dataset, a tiny finished run on it, and the command line in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sofa_fl.cli.main import app
from tests.cli.cases import Cli, write_images

TINY = (
    "data.name=tiny",
    "data.num_clients=6",
    "data.min_samples=5",
    "model.name=mlp",
    "model.hidden=8",
    "local.batches=2",
    "local.batch_size=20",
    "warmup=2",
    "rounds=2",
    "engine=sequential",
)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_images(folder / "tiny", size=6)
    return folder


@pytest.fixture(scope="session")
def tiny(data_dir: Path) -> list[str]:
    """Options of a run that takes a fraction of a second."""
    return ["--data-dir", str(data_dir), *(word for key in TINY for word in ("--set", key))]


@pytest.fixture(scope="session")
def cli() -> Cli:
    runner = CliRunner(env={"COLUMNS": "80"})
    return lambda *args: runner.invoke(app, list(args))


@pytest.fixture(scope="session")
def finished(cli: Cli, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended; not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    result = cli("run", *tiny, "--out", str(folder), "--quiet")
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.fixture
def run_folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.fixture(autouse=True)
def work_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
