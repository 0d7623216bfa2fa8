"""The folder of a new app."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from sofa_fl.deploy.flower.keys import main as make_keys
from sofa_fl.deploy.flower.scaffold import new_app
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import load_config


def test_everything_is_there_and_readable(tmp_path: Path) -> None:
    app = new_app(tmp_path / "My Clinics")
    project = tomllib.loads((app / "pyproject.toml").read_text())
    parts = project["tool"]["flwr"]["app"]["components"]
    for reference in parts.values():
        module = reference.partition(":")[0].replace(".", "/")
        assert (app / f"{module}.py").is_file()
        compile((app / f"{module}.py").read_text(), module, "exec")
    assert load_config(app / "my_clinics" / "sofa.yaml").method == "sofa"
    assert project["tool"]["flwr"]["app"]["config"]["run"] == f"{app}/runs/first"
    for path in app.rglob("*"):
        assert not path.is_file() or "$" not in path.read_text(), path


def test_telemetry_updates_and_installing_are_off(tmp_path: Path) -> None:
    text = (new_app(tmp_path / "clinics") / "env.sh").read_text()
    for line in (
        "FLWR_TELEMETRY_ENABLED=0",
        "FLWR_DISABLE_UPDATE_CHECK=1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1",
        "RAY_USAGE_STATS_ENABLED=0",
    ):
        assert f"export {line}\n" in text


@pytest.mark.parametrize("name", ["1clinic", "---"])
def test_a_name_that_python_cannot_import_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="begin it with a letter"):
        new_app(tmp_path / name)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="not an empty folder"):
        new_app(tmp_path)


def test_private_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    make_keys(["--server", "127.0.0.1:8000", "--nodes", "2", "--app", str(tmp_path)])
    for name in ("server.key", "node-0", "node-1"):
        assert stat.S_IMODE((tmp_path / "keys" / name).stat().st_mode) == 0o600
    assert not list((tmp_path / "keys").glob("ca.key")), "nobody can make another server"
    text = (tmp_path / ".flwr" / "config.toml").read_text()
    assert tomllib.loads(text)["superlink"]["deployed"]["address"] == "127.0.0.1:8000"


@pytest.mark.parametrize("arguments", [["--server", "nowhere"], ["--nodes", "1"]])
def test_keys_are_not_written_over(arguments: list[str], tmp_path: Path) -> None:
    make_keys(["--nodes", "1", "--app", str(tmp_path)])
    with pytest.raises(SystemExit):
        make_keys([*arguments, "--app", str(tmp_path)])
