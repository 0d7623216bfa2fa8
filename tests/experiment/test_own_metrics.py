"""Own metrics: what they are computed of, what they may do, and what they leave as it was."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch.nn import functional

import sofa_fl
from sofa_fl.api.runs import compare, resume, run
from sofa_fl.data.dealing import deal
from sofa_fl.data.federated_data import ClientData, FederatedData
from sofa_fl.data.own import from_arrays
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.scoring.outputs import Whole, outputs_of
from sofa_fl.experiment.scoring.own_metrics import spread
from sofa_fl.experiment.tracking.observers import scalars
from tests.experiment.cases import events_of, own_data, summary_of, tiny

Values = NDArray[Any]


def accuracy(outputs: Values, targets: Values) -> float:
    return float((outputs.argmax(axis=1) == targets).mean())


def f1(outputs: Values, targets: Values) -> float:
    return float(f1_score(targets, outputs.argmax(axis=1), average="macro", zero_division=0))


def mae(outputs: Values, targets: Values) -> float:
    assert outputs.shape == targets.shape
    return float(np.abs(outputs - targets).mean())


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def without(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in e.items() if key != "metrics"} for e in events]


def dealt() -> FederatedData:
    return sofa_fl.federate(tiny(Path("x")).data, 0, own_data())


@pytest.mark.parametrize("engine", ["sequential", "workers", "stacked"])
def test_they_are_of_what_each_client_uses_on_its_own_test_samples(
    tmp_path: Path, engine: str
) -> None:
    data = dealt()
    metrics = {"accuracy": accuracy, "f1": f1}
    plain = run(tiny(tmp_path / "plain", engine=engine), data=data)
    result = run(tiny(tmp_path / "run", engine=engine), data=data, metrics=metrics)
    events = events_of(result.run)
    assert without(events) == events_of(plain.run)  # to the bit, and nothing else was drawn
    for event in events:
        # The engine counted the same answers right, in its own way.
        assert event["metrics"]["accuracy"]["values"] == pytest.approx(event["accuracies"])
    last = events[-1]["metrics"]
    assert result.summary["metrics"] == last == summary_of(result.run)["metrics"]
    assert "metrics" not in plain.summary
    for client, rows in enumerate(data.clients):
        outputs = sofa_fl.predict(result.run, data.test.x[rows.test], node=f"client:{client}")
        assert last["f1"]["values"][client] == pytest.approx(f1(outputs, data.test.y[rows.test]))
    values = last["f1"]["values"]
    assert (last["f1"]["min"], last["f1"]["max"]) == (min(values), max(values))
    assert last["f1"]["mean"] == pytest.approx(np.mean(values))


def regression_data() -> FederatedData:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3)).astype(np.float32)
    return deal(from_arrays(x, x @ np.array([1.0, -2.0, 0.5])), by=np.arange(120) % 4)


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 1))


def test_in_regression_outputs_have_the_shape_of_the_targets(tmp_path: Path) -> None:
    data = regression_data()
    result = run(tiny(tmp_path / "run"), data=data, network=linear, metrics={"mae": mae})
    expected = []
    for client, rows in enumerate(data.clients):
        x, node = data.test.x[rows.test], f"client:{client}"
        outputs = sofa_fl.predict(result.run, x, node=node, network=linear)
        expected.append(np.abs(outputs[:, 0] - data.test.y[rows.test]).mean())
    assert result.summary["metrics"]["mae"]["values"] == pytest.approx(expected)


def test_what_cannot_be_computed_is_null_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def touchy(outputs: Values, targets: Values) -> float:
        if len(np.unique(targets)) < 3:
            raise ValueError("too few\nclasses")
        outputs[:] = 0  # what it does to them is no matter of the others
        return 1.0

    def endless(outputs: Values, targets: Values) -> float:
        return float("inf")

    data = dealt()
    few = [c for c, rows in enumerate(data.clients) if len(np.unique(data.test.y[rows.test])) < 3]
    assert 0 < len(few) < len(data.clients)
    metrics = {"touchy": touchy, "endless": endless, "accuracy": accuracy}
    result = run(tiny(tmp_path / "run"), data=data, metrics=metrics)
    said = f"the metric touchy failed for client {few[0]}: too few classes; "
    assert told(caplog) == [said + "its value is missing where it fails"]
    for event in events_of(result.run):
        found = event["metrics"]
        assert found["touchy"]["values"] == [None if c in few else 1.0 for c in range(5)]
        assert (found["touchy"]["mean"], found["endless"]["mean"]) == (1.0, None)
        assert found["accuracy"]["values"] == pytest.approx(event["accuracies"])
        numbers = scalars(event | {"seconds": 1.0})
        assert numbers["metrics/touchy/max"] == 1.0
        assert not [name for name in numbers if "endless" in name]


def test_who_has_no_test_samples_has_no_value(tmp_path: Path) -> None:
    data = dealt()
    first = data.clients[0]
    none = ClientData(first.train, first.holdout, np.empty(0, dtype=np.int64))
    data = replace(data, clients=(none, *data.clients[1:]))
    result = run(tiny(tmp_path / "run", rounds=1), data=data, metrics={"accuracy": accuracy})
    values = result.summary["metrics"]["accuracy"]["values"]
    assert values[0] is None
    assert None not in values[1:]


def stop(event: dict[str, Any]) -> None:
    if event["event"] == "round" and event["round"] == 1:
        raise KeyboardInterrupt


def test_a_resumed_run_goes_on_with_them_or_says_that_it_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics, data = {"accuracy": accuracy, "f1": f1}, own_data()
    whole = run(tiny(tmp_path / "whole"), data=data, metrics=metrics).run
    for name in ("with", "without"):
        with pytest.raises(KeyboardInterrupt):
            run(tiny(tmp_path / name), data=data, metrics=metrics, observers=[stop])
    resume(tmp_path / "with", data=data, metrics=metrics)
    assert events_of(tmp_path / "with") == events_of(whole)
    assert summary_of(tmp_path / "with") == summary_of(whole)
    assert told(caplog) == []

    bare = resume(tmp_path / "without", data=data)
    assert told(caplog) == [
        "the run continues without the metrics that it started with and that were not passed "
        "again: accuracy, f1"
    ]
    assert ["metrics" in event for event in events_of(bare.run)] == [True, True, False, False]
    assert "metrics" not in bare.summary
    assert without(events_of(bare.run)) == without(events_of(whole))

    caplog.clear()  # of a run that has ended nothing is lost, and nothing is to be said
    assert summary_of(resume(whole, data=data).run)["metrics"] == events_of(whole)[-1]["metrics"]
    assert told(caplog) == []


def test_all_methods_of_a_comparison_get_them(tmp_path: Path) -> None:
    config = tiny(tmp_path / "all", rounds=1)
    for _ in range(2):  # run, then resumed
        found = compare(["fedavg", "local"], config, data=own_data(), metrics={"f1": f1})
        assert all(len(r.summary["metrics"]["f1"]["values"]) == 5 for r in found.values())


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"": f1}, "the name of a metric must be .* got ''"),
        ({"f1/macro": f1}, "got 'f1/macro'"),
        ({"1st": f1}, "got '1st'"),
        ({"x" * 41: f1}, "at most 40 characters in all"),
        ({1: f1}, "got 1"),
        ({"f1": 0.5}, "the metric f1 must be a function of outputs and targets, got 0.5"),
        ([f1], "metrics must map names to functions, .* got list"),
    ],
)
def test_refused(tmp_path: Path, metrics: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(tiny(tmp_path / "run"), data=own_data(), metrics=metrics)
    assert not (tmp_path / "run").exists()


def test_nobody_has_a_value() -> None:
    assert spread([None]) == {"mean": None, "min": None, "max": None, "values": [None]}
    assert json.loads(json.dumps(spread([1.0, None, 3.0]))) == {
        "mean": 2.0, "min": 1.0, "max": 3.0, "values": [1.0, None, 3.0]
    }  # fmt: skip


def test_a_network_that_draws_in_evaluation_has_the_same_outputs_every_time() -> None:
    class Dropping(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return functional.dropout(super().forward(input), 0.5).bfloat16()

    whole = Whole(Dropping(3, 2), 1.0, 0.0, ())
    x = np.ones((4, 3), dtype=np.float32)
    first = outputs_of(whole, x)
    assert (first == 0).any()
    np.testing.assert_array_equal(outputs_of(whole, x), first)
