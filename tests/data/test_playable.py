"""Scenarios of samples that are not images, have no classes, or are dealt out already."""

from __future__ import annotations

import typing
from dataclasses import replace

import numpy as np
import pytest

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import dealt_out, federate
from sofa_fl.data.federated_data import Arrays
from sofa_fl.data.own import from_arrays
from sofa_fl.data.scenarios import ScenarioConfig, ScenarioName
from sofa_fl.errors import DataError

NAMES = [name for name in typing.get_args(ScenarioName) if name not in ("none", "years")]


def table(targets: str) -> tuple[Arrays, Arrays]:
    """Samples that are not images."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 5)).astype(np.float32)
    y = rng.integers(0, 3, 240) if targets == "classes" else rng.normal(size=240)
    return (from_arrays(x, y),) * 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rotations", "swaps"), [(4, 2), (1, 2), (1, 1), (2, 1)])
def test_what_is_said_of_tables_is_what_helps(
    name: ScenarioName, rotations: int, swaps: int
) -> None:
    """Whoever does what the sentence says gets data."""
    config = DataConfig(
        num_clients=8,
        partition="iid",
        num_rotations=rotations,
        num_swaps=swaps,
        scenario=ScenarioConfig(name=name),
    )
    with pytest.raises(DataError, match="your own stages") as error:
        federate(config, 0, table("numbers"))
    assert "\n" not in str(error.value)
    plays = name in ("swap", "converge", "churn")
    if plays and (rotations, swaps) == (1, 2):
        assert len(federate(config, 0, table("classes")).stages) == 2
        return
    with pytest.raises(DataError, match=r"inputs of shape \(5,\) are not images") as error:
        federate(config, 0, table("classes"))
    told = str(error.value)
    assert "use the scenario swap, converge or churn" in told
    assert "data.num_rotations=1 and data.num_swaps of at least 2; got" in told
    assert told.endswith(f"name={name}, data.num_rotations={rotations}, data.num_swaps={swaps}")


def test_a_scenario_is_not_passed_over_in_silence() -> None:
    """Of data that are dealt out already nothing would change."""
    plain = DataConfig(num_clients=8, partition="iid", num_rotations=1)
    data = federate(plain, 0, table("classes"))
    assert dealt_out(plain, 0, data) is data
    with pytest.raises(DataError, match=r"name=swap .* assigned already; give them stages"):
        dealt_out(replace(plain, scenario=ScenarioConfig(name="swap")), 0, data)
