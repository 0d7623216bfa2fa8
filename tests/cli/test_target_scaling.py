"""A regression is trained on targets of one scale, and told in the units that they came in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import sofa_fl
from tests.cli.cases import Cli

LOCAL = sofa_fl.LocalConfig(batches=30, batch_size=20, learning_rate=5e-3)
SCALES = [(70.0, 10.0), (-3e4, 1e3), (0.0, 1e-3)]


def config(out: Path, **values: Any) -> sofa_fl.Config:
    return sofa_fl.Config(
        **{"rounds": 6, "local": LOCAL, "out": str(out), "engine": "sequential", **values}
    )


def rows(plant: int, num: int = 160) -> tuple[NDArray[Any], NDArray[Any]]:
    """Plants 2 and 3 contradict plants 0 and 1."""
    rng = np.random.default_rng(plant)
    x = rng.normal(size=(num, 2))
    return x, x[:, 0] * (1 if plant < 2 else -1) + 0.5 * x[:, 1] + 0.1 * rng.normal(size=num)


def write_plants(folder: Path, mean: float, std: float) -> None:
    folder.mkdir()
    for plant in range(4):
        x, y = rows(plant)
        lines = [f"{a:.4f},{b:.4f},{mean + std * t:.9g}" for (a, b), t in zip(x, y)]
        (folder / f"p{plant}.csv").write_text("\n".join(["load,press,temp", *lines]) + "\n")


@pytest.mark.parametrize(("mean", "std"), SCALES)
def test_neither_scores_nor_tree_depend_on_the_unit(
    tmp_path: Path, mean: float, std: float
) -> None:
    write_plants(tmp_path / "plants", mean, std)
    data = sofa_fl.from_csv(tmp_path / "plants", target="temp")
    result = sofa_fl.run(config(tmp_path / "run"), data=data)
    assert result.worst > 0.8
    below = {tuple(sorted(result.view.tree.clients_of(c))) for c in result.view.tree.clusters}
    assert {(0, 1), (2, 3)} <= below
    assert result.notes == []
    errors = []
    for plant, (client, score) in enumerate(zip(data.clients, result.clients)):
        x, y = (array[client.test] for array in (data.test.x, data.test.y))
        raw = data.preprocessing
        assert raw is not None
        outputs = result.predict(x * raw.std + raw.mean, client=f"p{plant}")[:, 0]
        errors.append(((outputs - y.astype(float)) ** 2).mean())
        assert score.score == pytest.approx(1 - errors[-1] / y.astype(float).var(), abs=0.01)
    assert result.summary["rmse"] == pytest.approx(np.mean(np.sqrt(errors)), rel=0.01)
    assert 0.05 * std < result.summary["rmse"] < 0.5 * std


def test_on_the_command_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of the CLI is that of Python, and its files say how to scale outputs back."""
    monkeypatch.chdir(tmp_path)
    write_plants(tmp_path / "plants", 70, 10)
    settings = ["data.name=csv", "data.csv.target=temp", "local.batches=30", "local.batch_size=20"]
    given = [word for setting in settings for word in ("--set", setting)]
    made = cli("run", *given, "--data-dir", "plants", "--rounds", "3", "--out", "run", "--json")
    summary = json.loads(made.stdout)
    assert 0.5 < summary["rmse"] < 5
    table = sofa_fl.read_csv("plants/p0.csv")
    outputs = sofa_fl.predict("run", table, node="client:p0")
    assert abs(outputs.mean() - 70) < 3
    cli("export", "run", "--node", "client:p0", "--out", "p0.safetensors")
    with safe_open("p0.safetensors", "pt") as opened:
        about = {key: json.loads(value) for key, value in opened.metadata().items() if "{" in value}
    state = load_file("p0.safetensors")
    first, scaling = about["preprocessing"], about["target_scaling"]
    hidden = np.stack([table["load"], table["press"]], axis=1)
    hidden = (hidden - first["mean"]) / first["std"]
    *before, last = [name.removesuffix(".weight") for name in state if name.endswith(".weight")]
    for name in before:
        hidden = np.maximum(
            hidden @ state[f"{name}.weight"].numpy().T + state[f"{name}.bias"].numpy(), 0
        )
    values = hidden @ state[f"{last}.weight"].numpy().T + state[f"{last}.bias"].numpy()
    np.testing.assert_allclose(values * scaling["std"] + scaling["mean"], outputs, rtol=1e-4)
    told = cli("assign", "run", "plants/p3.csv", "--json")
    assert set(json.loads(told.stdout)["clients"]) <= {2, 3}


def linear(outputs: int) -> Any:
    return lambda: nn.Linear(2, outputs)


def mae(outputs: Any, targets: Any) -> float:
    return float(np.abs(outputs - targets).mean())


def test_arrays_and_values_of_different_units(tmp_path: Path) -> None:
    """Own metrics and RMSE are in the units of the arrays, and no value drowns in another."""
    x, y = rows(0, 400)
    both = np.stack([1e4 + 1e3 * y, 0.01 * x[:, 1]], axis=1)
    data = sofa_fl.deal(sofa_fl.from_arrays(x, both), by=np.arange(400) % 4)
    result = sofa_fl.run(
        config(tmp_path / "run"), data=data, network=linear(2), metrics={"mae": mae}
    )
    outputs = result.predict(x, client=1)
    assert (np.abs(outputs - both).mean(axis=0) < [300, 0.003]).all()
    test = data.clients[1].test
    gap = result.predict(data.test.x[test], client=1) - data.test.y[test]
    assert result.summary["metrics"]["mae"]["values"][1] == pytest.approx(np.abs(gap).mean(), 1e-3)
    gaps = [
        result.predict(data.test.x[client.test], client=number) - data.test.y[client.test]
        for number, client in enumerate(data.clients)
    ]
    rmse = np.mean([np.sqrt((gap.astype(float) ** 2).mean()) for gap in gaps])
    assert result.summary["rmse"] == pytest.approx(rmse, rel=1e-3)


def test_targets_as_they_are(tmp_path: Path) -> None:
    x, y = rows(0, 200)
    arrays = sofa_fl.from_arrays(x, 70 + 10 * y)
    data = sofa_fl.deal(arrays, by=np.arange(200) % 2)
    plain = config(tmp_path / "run", rounds=1)
    plain = replace(plain, data=replace(plain.data, standardize_targets=False))
    result = sofa_fl.run(plain, data=data, network=linear(1))
    assert result.export(tmp_path / "a.safetensors").target_scaling is None
    assert result.summary["rmse"] > 50
    (note,) = [note for note in result.notes if note.startswith("R²")]
    assert note.startswith("R² is below zero for 2 of 2 clients")


def test_whole_numbers_are_classes(tmp_path: Path) -> None:
    x, y = rows(0, 200)
    data = sofa_fl.deal(sofa_fl.from_arrays(x, (y > 0).astype(int)), by=np.arange(200) % 2)
    result = sofa_fl.run(config(tmp_path / "run", rounds=1), data=data, network=linear(2))
    assert result.metric == "accuracy"
    assert result.export(tmp_path / "a.safetensors").target_scaling is None
