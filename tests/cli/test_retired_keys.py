"""Settings of earlier versions: one sentence says what became of them, wherever one turns up."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import sofa_fl
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.values import RETIRED
from tests.cli.cases import Cli, assert_refused, files_in

KEY = "local.final_rate"
SENTENCE = f"{KEY} is no longer a setting: the learning rate is constant now; remove the key"


@pytest.fixture
def old_run(run_folder: Path) -> Path:
    """The folder of a run that an earlier version made."""
    file = run_folder / "config.yaml"
    config = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**config, "local": {**config["local"], "final_rate": 0.3}}))
    return run_folder


@pytest.mark.parametrize("command", [("run",), ("compare", "sofa")], ids=["run", "compare"])
@pytest.mark.parametrize("value", ["0.3", "1"])
def test_one_as_an_option(
    cli: Cli, tiny: list[str], work_dir: Path, command: tuple[str, ...], value: str
) -> None:
    assert_refused(cli(*command, *tiny, "--set", f"{KEY}={value}"), SENTENCE)
    assert list(work_dir.iterdir()) == []


def test_one_in_a_file(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    (work_dir / "old.yaml").write_text("local: {final_rate: 1}\n")
    assert_refused(cli("run", "old.yaml", *tiny), SENTENCE)
    with pytest.raises(ConfigError, match=f"^old.yaml: {SENTENCE}$"):
        sofa_fl.load_config("old.yaml")
    with pytest.raises(ConfigError, match=f"^{SENTENCE}$"):
        sofa_fl.preset("paper", local={"final_rate": 1.0})


def test_an_old_run_is_not_resumed_as_if_nothing_had_changed(cli: Cli, old_run: Path) -> None:
    before = files_in(old_run)
    assert_refused(cli("resume", str(old_run)), f"{old_run / 'config.yaml'}: {SENTENCE}")
    assert {path: files_in(old_run)[path] for path in before} == before


def test_the_models_of_an_old_run_are_still_exported(cli: Cli, old_run: Path) -> None:
    shown = cli("export", str(old_run), "--node", "client:0")
    assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("key", RETIRED)
def test_it_is_no_setting(key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key} is no longer a setting"):
        sofa_fl.load_config({}, [f"{key}=1"])
