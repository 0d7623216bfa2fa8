"""Keys are known without torch, and they are those of the configuration."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any, get_type_hints

import pytest

from sofa_fl.cli.options import check_keys, config_keys
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config


def keys_of(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {
        field.name: keys_of(hints[field.name])
        if dataclasses.is_dataclass(hints[field.name])
        else {}
        for field in dataclasses.fields(kind)
    }


def test_they_are_those_of_the_configuration() -> None:
    assert config_keys() == keys_of(Config)


@pytest.mark.parametrize(
    ("values", "settings", "words"),
    [
        ({}, ["local.lerning_rate=1"], "unknown key local.lerning_rate; did you mean local.lea"),
        ({"roundz": 3}, [], "unknown key roundz; did you mean rounds"),
        (
            {"data": {"csv": {"targt": "a"}}},
            [],
            "unknown key data.csv.targt; did you mean",
        ),
    ],
)
def test_misspelt_ones(values: dict[str, Any], settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_keys(values, settings)


def test_what_is_right_passes() -> None:
    check_keys({"options": {"keep": 1}, "data": {"alpha": 1}}, ["options.x.y=2", "rounds=x"])


def test_torch_is_not_loaded_for_a_misspelt_key() -> None:
    code = (
        "import sys\nfrom sofa_fl.cli.main import app\n"
        "try:\n    app(['run', '--set', 'local.lerning_rate=1'])\n"
        "except SystemExit as end:\n    print(end.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "unknown key local.lerning_rate" in done.stderr
    assert done.stdout.split()[1] == "False"
