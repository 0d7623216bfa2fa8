"""Every example runs as it is, and what can be done with a run can be done with its run."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import sofa_fl
from sofa_fl.cli.main import app
from tests.examples.intent_cases import few_intents, tiny_encoder
from tests.experiment.cases import events_of

EXAMPLES = Path(__file__).parents[2] / "examples"
LEAST = {  # what a run must reach at least, some way above a guess
    "own_csv": 0.75,
    "text": 0.85,
    "regression": 0.3,
    "image_folder": 0.7,
    "own_method": 0.7,
    "drift": 0.6,
    "intents": 0.6,
}


def test_all_examples_are_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == LEAST.keys()


@pytest.mark.parametrize("name", LEAST)
def test_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "intents":  # a tiny encoder and few intents in place of MiniLM and CLINC150
        monkeypatch.setenv("MINILM", str(tiny_encoder(tmp_path / "encoder")))
        monkeypatch.setenv("INTENTS", str(few_intents(tmp_path / "intents.json", each=144)))
    made = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    result, config, data = made["result"], made["config"], made["data"]
    own: dict[str, Any] = {key: made[key] for key in ("network", "method") if key in made}
    metrics = {"metrics": made["metrics"]} if "metrics" in made else {}
    assert capsys.readouterr().out.splitlines()[-1].endswith(f", {result.run}")
    assert result.summary["client"]["mean"] >= LEAST[name]
    assert list((result.run / "tensorboard").iterdir())

    local = replace(config.local, batches=2)
    config = replace(config, rounds=2, warmup=2, local=local, engine="sequential")
    stopped = stop_and_resume(config, tmp_path, data=data, **own, **metrics)
    compare(config, tmp_path, stopped.run, data, own)
    export(result, tmp_path, data, own, with_onnx=name in ("text", "image_folder"))


def stop_and_resume(config: sofa_fl.Config, folder: Path, **own: Any) -> sofa_fl.Result:
    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sofa_fl.run(replace(config, out=str(folder / "stopped")), observers=[stop], **own)
    result = sofa_fl.resume(folder / "stopped", **own)
    whole = sofa_fl.run(replace(config, out=str(folder / "whole")), **own)
    assert events_of(result.run) == events_of(whole.run)
    return result


def compare(
    config: sofa_fl.Config, folder: Path, other: Path, data: Any, own: dict[str, Any]
) -> None:
    """From Python, and two of its runs on one page."""
    config = replace(config, rounds=1, out=str(folder / "compared"))
    network = {key: value for key, value in own.items() if key == "network"}
    methods = {"fedavg": None, **({"mine": own["method"]} if "method" in own else {"local": None})}
    found = sofa_fl.compare(methods, config, data=data, **network)
    assert list(found) == list(methods)
    again = sofa_fl.compare(methods, config, data=data, **network)
    assert [r.summary["client"] for r in again.values()] == [
        r.summary["client"] for r in found.values()
    ]
    done = CliRunner().invoke(
        app, ["report", str(found["fedavg"].run), str(other), "--out", "page.html"]
    )
    assert done.exit_code == 0, done.output
    assert (folder / "page.html").stat().st_size > 10_000


def export(
    result: sofa_fl.Result, folder: Path, data: Any, own: dict[str, Any], *, with_onnx: bool
) -> None:
    test = data.test if isinstance(data, sofa_fl.FederatedData) else data[1]
    client = result.tree.clients[0]
    node = f"client:{client}"
    sofa_fl.export(result.run, folder / "root.safetensors", **own)
    expected = sofa_fl.predict(result.run, test.x[:8], node=node, **own)
    assert expected.shape[0] == 8
    if not with_onnx:
        return
    told = sofa_fl.export(result.run, folder / "client.onnx", node=node, **own)
    (found,) = ReferenceEvaluator(onnx.load(told.file)).run(
        None, {"input": test.x[:8].astype(np.float32)}
    )
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=1e-4)
