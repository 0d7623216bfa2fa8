"""Presets: applied first, then the file, then settings; and written down."""

from __future__ import annotations

from pathlib import Path

import pytest

import sofa_fl
from sofa_fl.api.runs import run
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config, config_to_dict, load_config, parse_config, preset
from sofa_fl.experiment.run.presets import PRESETS
from sofa_fl.experiment.run.values import value_at
from tests.experiment.cases import TINY, own_data


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_changes_what_it_names_and_nothing_else(name: str) -> None:
    plain, defaults = config_to_dict(preset(name)), config_to_dict(Config())
    for key, value in PRESETS[name].items():
        assert value_at(plain, key) == value
        assert value_at(defaults, key) != value, f"{name} sets {key} to its default"
    others = {key: value_at(defaults, key) for key in PRESETS[name]}
    back = load_config(plain, [f"{key}={_yaml(value)}" for key, value in others.items()])
    assert config_to_dict(back) == {**defaults, "preset": name}


def _yaml(value: object) -> str:
    return "null" if value is None else str(value)


def test_paper_has_the_papers_rules() -> None:
    rules = preset("paper").sofa.rules
    assert {rules.graft, rules.merge, rules.split} == {"paper"}


def test_the_file_and_then_settings_come_after_it(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("preset: paper\nlocal: {batches: 3, momentum: 0.5}\n")
    config = load_config(file)
    assert (config.preset, config.local.prior) == ("paper", False)
    assert (config.local.batches, config.local.momentum) == (3, 0.5)
    file.write_text("local: {momentum: 0.5}\n")
    config = load_config(file, ["sofa.serve=blend", "preset=paper"])
    assert (config.local.momentum, config.local.prior, config.sofa.serve) == (0.5, False, "blend")


def test_from_python() -> None:
    config = sofa_fl.preset("paper", rounds=5, data={"num_clients": 7})
    assert (config.rounds, config.data.num_clients, config.sofa.serve) == (5, 7, "own")
    with pytest.raises(ConfigError, match="unknown preset papre; did you mean paper"):
        preset("papre")
    with pytest.raises(ConfigError, match="unknown key round; did you mean rounds"):
        preset("paper", round=3)


def test_a_run_names_its_preset_and_its_configuration_is_complete(tmp_path: Path) -> None:
    values = {key: value for key, value in TINY.items() if key != "sofa"}
    config = preset("paper", **{**values, "rounds": 1, "out": str(tmp_path / "run")})
    result = run(config, data=own_data())
    written = load_config(result.run / "config.yaml")
    assert (written.preset, written.local, written.sofa) == ("paper", config.local, config.sofa)
    assert parse_config(config_to_dict(written)) == written
