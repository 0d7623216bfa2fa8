"""An exported model takes the rows that a user has, not those that the network saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from sofa_fl.api.runs import run
from sofa_fl.data.csv_files import read_csv
from sofa_fl.data.dealing import deal
from sofa_fl.data.own import from_arrays
from sofa_fl.errors import DataError, RunError
from sofa_fl.experiment.run.loop import RunResult
from sofa_fl.experiment.serving.model_files import export, predict
from tests.experiment.cases import tiny

LOCAL = {"batches": 30, "batch_size": 16, "learning_rate": 0.02}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hospitals; who is ill can be told by age, by city and by nothing else."""
    folder = tmp_path_factory.mktemp("hospitals")
    rng = np.random.default_rng(0)
    for name in ("bergen", "turin"):
        rows = []
        for _ in range(60):
            age, city = rng.integers(2000, 2080), rng.choice(["Oslo", "Rome"])
            ill = "yes" if (age > 2040) != (city == "Rome") else "no"
            rows.append(f"{age if rng.random() < 0.9 else ''},{city},{ill}")
        (folder / f"{name}.csv").write_text("age,city,ill\n" + "\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def result(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    data = {"name": "csv", "dir": str(folder), "csv": {"target": "ill"}}
    out = tmp_path_factory.mktemp("raw") / "run"
    return run(tiny(out, data=data, model={"name": "mlp", "hidden": 16}, local=LOCAL))


def outputs(file: Path, rows: NDArray[Any]) -> NDArray[Any]:
    model = onnx.load(file)
    onnx.checker.check_model(model)
    (found,) = ReferenceEvaluator(model).run(None, {"input": rows.astype(np.float32)})
    return np.asarray(found)


def test_onnx_and_predict_take_raw_rows(result: RunResult, folder: Path, tmp_path: Path) -> None:
    told = export(result.run, tmp_path / "a.onnx", node="client:turin")
    assert told.shape == (2,)
    about = {p.key: json.loads(p.value) for p in onnx.load(told.file).metadata_props}
    assert about["preprocessing"]["classes"] == ["no", "yes"]
    assert about["preprocessing"]["columns"][1]["words"] == ["Oslo", "Rome"]
    table = read_csv(folder / "turin.csv")
    raw = np.stack([table["age"], np.where(table["city"] == "Rome", 1, 0)], axis=1)
    found = outputs(told.file, raw)
    by_name = predict(result.run, table, node="client:turin")
    np.testing.assert_allclose(by_name, found, atol=1e-5)
    np.testing.assert_allclose(predict(result.run, raw, node="client:1"), by_name, atol=1e-6)
    known = ~np.isnan(table["age"])
    hits = np.array(["no", "yes"])[found.argmax(axis=1)] == table["ill"]
    assert hits[known].mean() > 0.9
    with pytest.raises(DataError, match=r"shape \(n, 2\), got \(3, 4\)"):
        predict(result.run, np.zeros((3, 4)))
    with pytest.raises(RunError, match="no node 'client:oslo' has a model"):
        predict(result.run, raw, node="client:oslo")


def test_safetensors_say_what_to_do(result: RunResult, tmp_path: Path) -> None:
    told = export(result.run, tmp_path / "a.safetensors")
    assert told.preprocessing is not None
    with safetensors.safe_open(told.file, framework="pt") as file:
        about = json.loads(file.metadata()["preprocessing"])
    assert about["mean"] == list(told.preprocessing.mean)
    assert [column["name"] for column in about["columns"]] == ["age", "city"]


def test_standardized_arrays(tmp_path: Path) -> None:
    """What `deal(standardize=True)` subtracts is not lost: raw rows score as the run's did."""
    rng = np.random.default_rng(1)
    x = 1000 + 50 * rng.normal(size=(200, 4))
    y = (x[:, 0] > 1000).astype(int)
    data = deal(from_arrays(x, y), np.array(["a", "b"])[np.arange(200) % 2], standardize=True)
    result = run(tiny(tmp_path / "run", local=LOCAL), data=data)
    found = outputs(export(result.run, tmp_path / "a.onnx", node="client:b").file, x)
    assert (found.argmax(axis=1) == y).mean() > 0.9
    np.testing.assert_allclose(predict(result.run, x, node="client:b"), found, atol=1e-5)
