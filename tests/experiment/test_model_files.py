"""A model outside of its run does what it did inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors
import torch
from onnx.reference import ReferenceEvaluator
from safetensors.torch import load_file
from torch import nn

from sofa_fl.api.runs import run
from sofa_fl.data.federate import federate
from sofa_fl.errors import ConfigError, RunError
from sofa_fl.experiment.run.loop import RunResult
from sofa_fl.experiment.serving.model_files import export
from sofa_fl.federation import Federation
from sofa_fl.methods.baselines.local import Local, LocalState
from sofa_fl.methods.method import Notes, View
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import network_factory
from sofa_fl.sharing import SharingConfig
from tests.experiment.cases import own_data, tiny

TRAIN, TEST = own_data()
SHAPE = tuple(TRAIN.x.shape[1:])
CONFIG = tiny(Path())


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(tiny(tmp_path_factory.mktemp("export") / "run"), data=(TRAIN, TEST))


def test_the_root_as_a_state_dict(result: RunResult, tmp_path: Path) -> None:
    told = export(result.run, tmp_path / "root.safetensors")
    assert (told.node, told.round, told.shape, told.prior) == ("root", 3, SHAPE, ())
    network = network_factory(ModelConfig(name="mlp", hidden=6), SHAPE, TRAIN.num_classes)()
    network.load_state_dict(load_file(told.file))
    x = torch.from_numpy(TEST.x.astype(np.float32)) * told.scale + told.shift
    hits = network(x).detach().numpy().argmax(axis=1) == TEST.y
    assert hits.mean() == pytest.approx(result.summary["root"])
    with safetensors.safe_open(told.file, framework="pt") as file:
        assert file.metadata()["round"] == "3"


def test_what_a_client_uses_as_onnx(result: RunResult, tmp_path: Path) -> None:
    """With its blend, its class mix and the scaling of inputs inside; all its samples at once."""
    told = export(result.run, tmp_path / "1.onnx", node="client:1")
    assert len(told.prior) == TRAIN.num_classes
    model = onnx.load(told.file)
    onnx.checker.check_model(model)
    rows = federate(CONFIG.data, CONFIG.seed, (TRAIN, TEST)).clients[1].test
    (outputs,) = ReferenceEvaluator(model).run(None, {"input": TEST.x[rows].astype(np.float32)})
    hits = np.asarray(outputs).argmax(axis=1) == TEST.y[rows]
    assert hits.mean() == pytest.approx(result.summary["client"]["accuracies"][1])


def test_every_node_with_a_model(result: RunResult, tmp_path: Path) -> None:
    vectors = {}
    for node in result.view.models:
        told = export(result.run, tmp_path / f"{node}.safetensors", node=node)
        vectors[node] = torch.cat([t.flatten() for t in load_file(told.file).values()])
    root = load_file(export(result.run, tmp_path / "root.safetensors").file)
    assert torch.equal(vectors[result.tree.root], torch.cat([t.flatten() for t in root.values()]))
    assert len({tuple(vector[:50].tolist()) for vector in vectors.values()}) > 1


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("client:99", "client 99 is not in the last round; its clients: 0, 1"),
        ("77", "no node '77' has a model; use root, client:N"),
        ("leaf", "no node 'leaf' has a model"),
        ("client:x", "no node 'client:x' has a model"),
    ],
)
def test_nodes_that_are_not_there(result: RunResult, tmp_path: Path, node: str, words: str) -> None:
    with pytest.raises(RunError, match=words):
        export(result.run, tmp_path / "a.onnx", node=node)
    assert list(tmp_path.iterdir()) == []


def test_other_formats_and_folders(result: RunResult, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"safetensors, onnx or peft, got 'pt'"):
        export(result.run, tmp_path / "model.pt")
    with pytest.raises(RunError, match="is not a run folder"):
        export(tmp_path, tmp_path / "model.onnx")
    with pytest.raises(RunError, match="cannot write"):
        export(result.run, tmp_path / "none" / "model.safetensors")


def own_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(SHAPE)), TRAIN.num_classes))


def test_an_own_network_is_passed_again(tmp_path: Path) -> None:
    folder = run(tiny(tmp_path / "run"), data=(TRAIN, TEST), network=own_network).run
    with pytest.raises(
        RunError, match=r"your own network.*sofa_fl\.export\(\.\.\., network=\.\.\."
    ):
        export(folder, tmp_path / "a.safetensors")
    with pytest.raises(RunError, match="was run with another network"):
        export(folder, tmp_path / "a.safetensors", network=lambda: nn.Linear(2, 2))
    told = export(folder, tmp_path / "a.safetensors", node="client:0", network=own_network)
    assert load_file(told.file).keys() == own_network().state_dict().keys()


@dataclass(frozen=True)
class Mine:
    """An own method that is `local` by another name."""

    inner = Local(SharingConfig(ratio=0))

    def init(self, fed: Federation) -> tuple[LocalState, Notes]:
        return self.inner.init(fed)

    def round(self, state: LocalState, fed: Federation) -> tuple[LocalState, Notes]:
        return self.inner.round(state, fed)

    def view(self, state: LocalState) -> View:
        return self.inner.view(state)


def test_an_own_method_is_passed_again(tmp_path: Path) -> None:
    folder = run(tiny(tmp_path / "run"), data=(TRAIN, TEST), method=Mine()).run
    with pytest.raises(RunError, match="your own method"):
        export(folder, tmp_path / "a.safetensors")
    assert export(folder, tmp_path / "a.safetensors", method=Mine()).round == 3


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    folder = run(tiny(tmp_path / "run"), data=(TRAIN, TEST)).run
    newest = folder / "checkpoints" / "round-00003.safetensors"
    newest.write_bytes(newest.read_bytes()[:-4])
    assert export(folder, tmp_path / "a.safetensors").round == 2
    for file in (folder / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(RunError, match="no intact checkpoint"):
        export(folder, tmp_path / "a.safetensors")


def test_onnx_that_is_not_installed(
    result: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(RunError, match=r"pip install 'sofa-fl\[onnx\]'"):
        export(result.run, tmp_path / "a.onnx")
