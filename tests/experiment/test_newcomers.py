"""A client that no run has seen is served what those are whose inputs, or labels, are alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

from sofa_fl import present
from sofa_fl.api.runs import run
from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData
from sofa_fl.errors import ConfigError, DataError, RunError
from sofa_fl.experiment.scoring.outputs import outputs_of
from sofa_fl.experiment.serving.model_files import predict
from sofa_fl.experiment.serving.newcomers import assign, by_inputs, by_losses, sample_losses
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.disk import DamagedError
from sofa_fl.experiment.storage.saving import MeanInputs
from sofa_fl.topology.tree import NodeId
from tests.engine.cases import NUM_CLASSES, SHAPE, images
from tests.experiment.cases import tiny

GROUP, NEW = 3, 40  # clients of a group; samples of a newcomer
A, B, C = NodeId(0), NodeId(1), NodeId(9)


def federation() -> FederatedData:
    """Dark clients, bright ones, and dark ones that call every class otherwise."""
    arrays = images(9 * 50, 3)
    x, y = arrays.x.astype(np.int64), arrays.y.copy()
    x[3 * 50 : 6 * 50] += 30
    y[6 * 50 :] = NUM_CLASSES - 1 - y[6 * 50 :]
    rows = np.arange(9 * 50).reshape(9, 50)
    data = replace(arrays, x=x.astype(np.uint8), y=y)
    clients = tuple(ClientData(own[5:], own[:5], own) for own in rows)
    truth = (tuple(number // GROUP for number in range(9)),)
    return FederatedData(data, data, clients, NUM_CLASSES, truth)


def newcomer(group: int, num: int = NEW) -> Arrays:
    arrays = images(num, 77)
    x = arrays.x.astype(np.int64) + 30 * (group == 1)
    y = NUM_CLASSES - 1 - arrays.y if group == 2 else arrays.y
    return replace(arrays, x=x.astype(np.uint8), y=y)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny(tmp_path_factory.mktemp("assign") / "run", method="oracle")
    local = replace(config.local, batches=30, batch_size=20, learning_rate=0.01)
    return run(replace(config, local=local), data=federation()).run


def group_of(clients: tuple[int, ...]) -> set[int]:
    return {client // GROUP for client in clients}


def test_inputs_tell_those_who_see_the_same(folder: Path) -> None:
    bright = assign(folder, newcomer(1).x)
    assert group_of(bright.clients) == {1}
    assert len(bright.clients) == GROUP, "it is as like one of them as the others"
    assert group_of(assign(folder, newcomer(0).x).clients) <= {0, 2}
    root, cluster = bright.path
    assert str(cluster) == bright.node
    assert root not in bright.clients


def test_labels_tell_those_who_call_it_the_same(folder: Path) -> None:
    for group, alike in enumerate(({0, 1}, {0, 1}, {2})):
        new = newcomer(group)
        found = assign(folder, new.x, new.y)
        assert group_of(found.clients) <= alike
        hits = outputs_of(found.model, new.x).argmax(axis=1) == new.y
        assert hits.mean() > 0.9
    odd = newcomer(2)
    unlabelled = outputs_of(assign(folder, odd.x).model, odd.x).argmax(axis=1)
    same = outputs_of(assign(folder, newcomer(0).x).model, odd.x).argmax(axis=1)
    assert (unlabelled == same).all(), "inputs alone cannot tell"


def test_the_model_has_the_class_mix_of_the_clients(folder: Path) -> None:
    new = newcomer(1)
    found = assign(folder, new.x)
    plain = predict(folder, new.x, node=found.node)
    data = federation()
    counts = [
        np.bincount(data.train.y[data.clients[client].train], minlength=NUM_CLASSES) + 1
        for client in found.clients
    ]
    expected = plain + np.log(np.mean([each / each.sum() for each in counts], axis=0))
    np.testing.assert_allclose(outputs_of(found.model, new.x), expected, atol=1e-4)


def test_what_a_client_is_served(tmp_path: Path) -> None:
    """Where there is no cluster that fits, as among clients that train alone."""
    data = federation()
    config = tiny(tmp_path / "run", method="local", rounds=1)
    alone = run(config, data=replace(data, clients=data.clients[1:5], truth=())).run
    found = assign(alone, data.train.x[data.clients[3].train], data.train.y[data.clients[3].train])
    outputs = predict(alone, data.test.x, node=found.node)
    np.testing.assert_allclose(outputs_of(found.model, data.test.x), outputs, atol=1e-5)
    assert found.node.startswith("client:")
    assert found.path[-1] == int(found.node.removeprefix("client:"))
    assert found.clients == (found.path[-1],)


def test_the_model_as_a_file(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    found = assign(folder, newcomer(1).x, file=file)
    with safetensors.safe_open(file, framework="pt") as opened:
        about = opened.metadata()
    assert about["node"] == found.node
    assert json.loads(about["prior"]) == pytest.approx(found.model.prior.tolist())


def test_the_nearest_mean_input_and_few_samples_held_against_it() -> None:
    below = {A: (0,), B: (1,), C: (0, 1)}
    means = np.array([[0.0, 0.0], [1.0, 0.0]], dtype=np.float32)
    stored = MeanInputs((0, 1), (10, 10), 1, means)
    quiet = np.array([[0.1, 0.0], [0.1, 0.0]])  # no spread, so nothing is held against anybody
    assert by_inputs(quiet, below, stored) == A
    assert by_inputs(quiet + np.array([0.8, 0]), below, stored) == B
    assert by_inputs(quiet + np.array([0.35, 0]), below, stored) == C
    # 0.3 is nearer to 0 than to 0.5 by 0.05; a spread of 1 over 10 samples, or 20, undoes that.
    x = np.array([[-0.76, 0.0], [1.24, 0.0]])
    assert by_inputs(np.full((2, 2), [0.24, 0]), below, stored) == A
    assert by_inputs(x, below, stored) == C


def test_large_inputs_are_compared_by_some_of_their_entries() -> None:
    stored = MeanInputs((0, 1), (5, 5), 2, np.array([[0.0, 4.0], [1.0, 4.0]], dtype=np.float32))
    assert by_inputs(np.array([[0.9, 7.0, 4.0, 7.0]]), {A: (0,), B: (1,)}, stored) == B


def test_what_is_kept_of_large_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = federation()
    monkeypatch.setattr(present, "MOST_MEANS", 9 * 16)
    own = present.Present(data, data.stage(0), with_priors=False)
    assert own.step == 4
    assert own.mean_inputs.shape == (9, 16)
    seen = data.train.x[data.clients[4].train].reshape(-1, 64) * data.train.scale + data.train.shift
    np.testing.assert_allclose(own.mean_inputs[4], seen.mean(axis=0)[::4], rtol=1e-5)
    config = tiny(tmp_path / "run", method="oracle", rounds=1)
    assert group_of(assign(run(config, data=data).run, newcomer(1).x).clients) == {1}


def test_the_largest_that_is_as_good_within_one_standard_error() -> None:
    sizes = {A: 1, B: 1, C: 2}
    best, close = np.array([0.1, 0.3, 0.2, 0.2]), np.array([0.3, 0.1, 0.4, 0.1])
    worse = best + 0.1  # always, so there is no doubt
    assert by_losses({A: best, B: close, C: worse}, sizes) == A
    assert by_losses({A: best, B: worse, C: close}, sizes) == C
    assert by_losses({A: best[:1], B: close[:1], C: close[:1]}, sizes) == A


def test_losses_by_hand() -> None:
    outputs = np.log(np.array([[0.5, 0.5], [0.9, 0.1]], dtype=np.float32))
    assert sample_losses(outputs, [0, 1]) == pytest.approx(-np.log([0.5, 0.1]), rel=1e-5)
    values = np.array([[1.0], [3.0]], dtype=np.float32)
    assert sample_losses(values, [2.0, 3.0]) == pytest.approx([1.0, 0.0])


def test_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = newcomer(0)
    with pytest.raises(DataError, match=r"inputs must have shape \(n, 1, 8, 8\), got \(40, 64\)"):
        assign(folder, new.x.reshape(NEW, -1))
    with pytest.raises(DataError, match="at least one is needed, got 0"):
        assign(folder, np.zeros((0, *SHAPE)))
    with pytest.raises(DataError, match="one label for each of the 40 inputs, got 3"):
        assign(folder, new.x, [0, 1, 2])
    with pytest.raises(DataError, match="labels must be from 0 to 3, got 0 to 4"):
        assign(folder, new.x, [4, *[0] * (NEW - 1)])
    with pytest.raises(ConfigError, match="safetensors, onnx or peft"):
        assign(folder, new.x, file=tmp_path / "model.pt")

    def without_means(path: Path, name: str, kind: type[Any]) -> Any:
        if kind is MeanInputs:
            raise DamagedError("no such part")
        return load(path, name, kind)

    load = checkpoint.load
    monkeypatch.setattr(checkpoint, "load", without_means)
    with pytest.raises(RunError, match=r"stored no mean inputs of its clients.*pass labels with y"):
        assign(folder, new.x)
    assert group_of(assign(folder, new.x, new.y).clients) == {0}
