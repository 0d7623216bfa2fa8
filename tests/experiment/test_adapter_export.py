"""An exported adapter does in `peft` what it did in the run, for any node and any client."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import BertForSequenceClassification

import sofa_fl
from sofa_fl.errors import ModelError, RunError
from sofa_fl.models.networks import NetworkFactory
from tests.models.transformer_cases import bert, token_rows

pytestmark = pytest.mark.slow

LOCAL = sofa_fl.LocalConfig(batches=4, batch_size=8, learning_rate=2e-2)
CONFIG = sofa_fl.Config(rounds=2, engine="sequential", local=LOCAL)
X = token_rows(160)
DATA = sofa_fl.deal(
    sofa_fl.from_arrays(X, (X[:, 0] // 14).astype(np.int64)), by=np.arange(len(X)) % 4
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    model: Any = bert()
    model.save_pretrained(folder)
    return folder


def lora_on(folder: Path, r: int = 2) -> NetworkFactory:
    config = LoraConfig(task_type="SEQ_CLS", r=r, target_modules=["query", "value"])
    return lambda: get_peft_model(BertForSequenceClassification.from_pretrained(folder), config)


@pytest.fixture(scope="module", params=[False, True], ids=["one A", "both factors"])
def result(
    request: pytest.FixtureRequest, base: Path, tmp_path_factory: pytest.TempPathFactory
) -> sofa_fl.Result:
    config = replace(CONFIG, out=str(tmp_path_factory.mktemp("run") / "run"))
    plain = lora_on(base)
    network = sofa_fl.from_peft(plain, train_a=True) if request.param else plain
    return sofa_fl.run(config, data=DATA, network=network)


def outputs(base: Path, adapter: Path) -> NDArray[Any]:
    """What `peft` makes of it, on a base of its own."""
    model = BertForSequenceClassification.from_pretrained(base)
    loaded = PeftModel.from_pretrained(model, str(adapter)).eval()
    ids = torch.from_numpy(X[:20]).long()
    with torch.no_grad():
        logits = loaded(input_ids=ids, attention_mask=(ids != 0).long()).logits
    return np.asarray(logits.numpy())


def test_every_node_and_client(result: sofa_fl.Result, base: Path, tmp_path: Path) -> None:
    seen = []
    nodes = [*map(str, result.view.models), *(f"client:{client}" for client in range(4))]
    for node in nodes:
        told = result.export(tmp_path / node, node=node, format="peft")
        assert told.prior == (), "it is in the bias of the head"
        seen.append(outputs(base, told.file))
        expected = result.predict(X[:20], node=node)
        np.testing.assert_allclose(seen[-1], expected, rtol=1e-4, atol=1e-5)
    assert len({out.tobytes() for out in seen}) > 4, "nodes differ"
    config = json.loads((tmp_path / "client:0" / "adapter_config.json").read_text())
    assert config["r"] == 2
    assert (tmp_path / "client:0" / "adapter_model.safetensors").stat().st_size < 20_000


def test_base_and_adapter_in_one_onnx_file(result: sofa_fl.Result, tmp_path: Path) -> None:
    told = result.export(tmp_path / "client.onnx", client=1)
    (out,) = ReferenceEvaluator(onnx.load(told.file)).run(None, {"input": X[:20]})
    np.testing.assert_allclose(
        np.asarray(out), result.predict(X[:20], client=1), rtol=1e-3, atol=1e-4
    )


def test_another_adapter_is_refused(result: sofa_fl.Result, base: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"must be those of the run \(4\d\)"):
        sofa_fl.export(result.run, tmp_path / "x", format="peft", network=lora_on(base, r=3))


def test_what_is_no_adapter_is_refused(tmp_path: Path) -> None:
    class Plain(nn.Linear):
        def __init__(self) -> None:
            super().__init__(X.shape[1], 3)

    config = replace(CONFIG, rounds=1, out=str(tmp_path / "run"))
    result = sofa_fl.run(config, data=DATA, network=Plain)
    with pytest.raises(RunError, match=r"only peft models have adapters to export, got .*Plain"):
        result.export(tmp_path / "adapter", format="peft")


def test_a_run_is_resumed_on_its_own_base(base: Path, tmp_path: Path) -> None:
    """Also where the base has changed since."""

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            raise KeyboardInterrupt

    whole = sofa_fl.run(
        replace(CONFIG, out=str(tmp_path / "whole")), data=DATA, network=lora_on(base)
    )
    with pytest.raises(KeyboardInterrupt):
        sofa_fl.run(
            replace(CONFIG, out=str(tmp_path / "stopped")),
            data=DATA,
            network=lora_on(base),
            observers=[stop],
        )
    other: Any = bert()
    other.save_pretrained(tmp_path / "other")
    resumed = sofa_fl.resume(tmp_path / "stopped", data=DATA, network=lora_on(tmp_path / "other"))
    assert resumed.summary["client"] == whole.summary["client"]
