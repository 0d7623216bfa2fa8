"""A user's own method, data and network are recorded as what they are, and resumed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from torch import nn

import sofa_fl
from sofa_fl.api.runs import compare, resume, run, run_or_resume
from sofa_fl.data.federated_data import ClientData, FederatedData
from sofa_fl.engine.base import LocalConfig
from sofa_fl.errors import ConfigError, DataError, ModelError, RunError
from sofa_fl.experiment.run.config import Config, load_config
from sofa_fl.experiment.run.launch import run_once
from sofa_fl.methods.baselines.fedprox import FedProx
from sofa_fl.methods.config import FedProxConfig
from sofa_fl.report.page import RunReader
from sofa_fl.sharing import SharingConfig
from tests.engine.cases import NUM_CLASSES, make_data
from tests.experiment.cases import TINY, events_of, own_data, summary_of, tiny
from tests.methods.own import FedAvg, Momentum, MomentumConfig, Unfinished

PATH = "tests.methods.own:SetMomentum"


def recorded(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())
    return values


def own_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, NUM_CLASSES))


def test_a_method_is_recorded_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = replace(tiny(Path("x"), rounds=1), out=None)
    result = run(config, data=own_data(), method=Momentum(MomentumConfig(keep=0.25)))
    assert result.run == Path("runs/momentum-own-0")
    config_yaml = recorded(result.run)
    assert (config_yaml["method"], config_yaml["title"]) == ("momentum", "Momentum")
    assert config_yaml["options"] == {"keep": 0.25, "nesterov": False}
    assert config_yaml["own"] == ["data", "method"]
    summary = json.loads((result.run / "summary.json").read_text())
    assert (summary["method"], summary["title"]) == ("momentum", "Momentum")
    assert (summary["data"], summary["own"]) == ("own", ["data", "method"])
    about = RunReader(result.run).about()
    assert (about["title"], about["data"]) == ("Momentum", "own data")
    with pytest.raises(RunError, match=r"your own method.*sofa_fl\.resume\(\.\.\., method="):
        resume(result.run, data=own_data())
    again = resume(result.run, data=own_data(), method=Momentum(MomentumConfig(keep=0.25)))
    assert again.summary["client"] == result.summary["client"]


def test_a_class_with_one_of_our_names_is_not_taken_for_it(tmp_path: Path) -> None:
    result = run(tiny(tmp_path / "run", rounds=1), data=own_data(), method=FedAvg())
    assert result.summary["method"] == recorded(result.run)["method"] == "own_fedavg"


def test_one_of_ours_as_an_object_is_recorded_with_its_settings(tmp_path: Path) -> None:
    method = FedProx(FedProxConfig(pull=0.7), SharingConfig(ratio=0.0))
    result = run(tiny(tmp_path / "run", rounds=1), data=own_data(), method=method)
    config = load_config(result.run / "config.yaml")
    assert (config.method, config.title) == ("fedprox", "FedProx+")
    assert (config.fedprox.pull, config.sharing.ratio) == (0.7, 0.0)


def test_a_method_named_by_its_path_is_resumed_without_it(tmp_path: Path) -> None:
    values = {"method": PATH, "options": {"keep": 0.25}}
    whole = run(tiny(tmp_path / "whole", **values), data=own_data())
    assert (whole.summary["method"], whole.summary["title"]) == ("setmomentum", "SetMomentum")
    assert recorded(whole.run)["method"] == PATH
    assert recorded(whole.run)["options"] == {"keep": 0.25, "nesterov": False}
    with pytest.raises(KeyboardInterrupt):
        run(tiny(tmp_path / "cut", **values), data=own_data(), observers=[stop_after(1)])
    resume(tmp_path / "cut", data=own_data())
    assert events_of(tmp_path / "cut") == events_of(whole.run)
    assert summary_of(tmp_path / "cut") == summary_of(whole.run)


def stop_after(round: int) -> Any:
    def observer(event: dict[str, Any]) -> None:
        if event.get("round") == round:
            raise KeyboardInterrupt

    return observer


def test_a_name_may_be_passed_to_run(tmp_path: Path) -> None:
    result = run(tiny(tmp_path / "run", rounds=1), data=own_data(), method="fedavg")
    assert (result.summary["method"], result.summary["title"]) == ("fedavg", "FedAvg+")
    assert recorded(result.run)["own"] == ["data"]
    titled = tiny(tmp_path / "titled", rounds=1, title="The mean")
    assert run(titled, data=own_data(), method="fedavg").summary["title"] == "The mean"


def test_own_data_and_an_own_network_are_said_in_the_configuration(tmp_path: Path) -> None:
    data = make_data()
    result = run(tiny(tmp_path / "run", rounds=1), data=data, network=own_network)
    config = recorded(result.run)
    assert config["data"]["name"] == config["data"]["partition"] == config["model"]["name"] == "own"
    assert config["data"]["num_clients"] == len(data.clients)
    named = tiny(tmp_path / "named", rounds=1, data={**TINY["data"], "name": "clinics"})
    result = run(named, data=own_data())
    assert recorded(result.run)["data"]["name"] == "clinics"
    assert recorded(result.run)["data"]["partition"] == "dirichlet", "by which they were dealt out"


@pytest.mark.parametrize("key", ["data.name", "data.partition", "model.name"])
def test_own_things_cannot_be_named_without_them(key: str, tmp_path: Path) -> None:
    small = ["data.num_train=300", "data.num_test=50", f"out={tmp_path / 'run'}"]
    with pytest.raises((ConfigError, DataError, ModelError), match=f"{key}=own means that"):
        run(load_config(settings=[f"{key}=own", *small]))
    assert not (tmp_path / "run").exists()


def test_compare_shows_the_names_it_is_given(tmp_path: Path) -> None:
    config = tiny(tmp_path, rounds=1)
    results = compare({"fedavg": None, "mine": Momentum()}, config, data=own_data())
    assert {name: each.summary["title"] for name, each in results.items()} == {
        "fedavg": "FedAvg+",
        "mine": "mine",
    }
    assert results["mine"].run == tmp_path / "mine-0"
    assert results["mine"].summary["method"] == "momentum"


def test_compare_over_seeds_and_again(tmp_path: Path) -> None:
    config = tiny(tmp_path, rounds=1)
    events: list[str] = []
    first = compare(["fedavg", PATH], config, seeds=[0, 1], data=own_data())
    assert {name: [r.summary["seed"] for r in runs] for name, runs in first.items()} == {
        "fedavg": [0, 1],
        "setmomentum": [0, 1],
    }
    note = [lambda event: events.append(event["event"])]
    again = compare(["fedavg"], config, seeds=[1], data=own_data(), observers=note)
    assert again["fedavg"][0].summary["client"] == first["fedavg"][1].summary["client"]
    assert set(events) == {"start", "scoring", "end"}, "no round was run again"
    with pytest.raises(RunError, match=r"fedavg-0 was run with rounds=1, not 2; choose another"):
        compare(["fedavg"], replace(config, rounds=2), data=own_data())


def test_compare_refuses_a_wrong_name_before_the_first_run(tmp_path: Path) -> None:
    for wrong in ("fedavgg", "tests.methods.own:Unfinished"):
        with pytest.raises(ConfigError, match=wrong.partition(":")[0]):
            compare(["fedavg", wrong], tiny(tmp_path / "out"), data=own_data())
    assert not (tmp_path / "out").exists()


def test_run_or_resume_and_run_once(tmp_path: Path) -> None:
    config = tiny(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run_or_resume(config, data=own_data(), observers=[stop_after(1)])
    rounds: list[int] = []
    note = [lambda event: rounds.append(event["round"]) if event["event"] == "round" else None]
    result = run_or_resume(config, data=own_data(), observers=note)
    assert rounds == [2, 3]
    assert run_once(config)["client"] == result.summary["client"]
    (tmp_path / "run" / "summary.json").write_text("{")
    with pytest.raises(RunError, match=r"summary\.json is damaged"):
        run_once(config)


PYTHON: dict[str, tuple[dict[str, Any], str]] = {
    "optimizer": (
        {"local": LocalConfig(optimizer="Adam")},  # type: ignore[arg-type]
        "local.optimizer: input should be 'adam' or 'sgd', got 'Adam'",
    ),
    "engine": ({"engine": "gpu"}, "engine: input should be 'auto', 'sequential'"),
    "method": ({"method": "fedavgg"}, "unknown method fedavgg; did you mean fedavg?"),
    "range": ({"rounds": 0}, "rounds: input should be greater than or equal to 1, got 0"),
    "section": ({"data": 3}, "data is a section with its own keys, got 3"),
    "preset": ({"preset": "paper"}, "preset='paper' was set, but without its values"),
}


@pytest.mark.parametrize(("values", "sentence"), PYTHON.values(), ids=PYTHON)
def test_a_configuration_from_python_is_checked_like_yaml(
    values: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    config = Config(**{"out": str(tmp_path / "run"), **values})
    for start in (run, lambda each, **own: compare(["sofa"], each, **own)):
        if values.keys() == {"method"} and start is not run:
            continue  # compare names the methods itself
        with pytest.raises(ConfigError) as caught:
            start(config, data=own_data())
        assert str(caught.value).startswith(sentence)
    assert not (tmp_path / "run").exists()


def test_numbers_and_paths_of_python_are_taken(tmp_path: Path) -> None:
    config = replace(tiny(tmp_path), rounds=np.int64(1), out=tmp_path / "run")  # type: ignore[arg-type]
    assert run(config, data=own_data()).summary["rounds"] == 1


OWN: dict[str, tuple[dict[str, Any], str]] = {
    "a network": ({"network": nn.Linear(8, 3)}, "network must be a function that returns a new"),
    "no function": (
        {"network": 3},
        "network must be a function that returns a new network, got a int",
    ),
    "a lazy network": (
        {"network": lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(4))},
        "the size of 1.weight is unknown until the network is used",
    ),
    "plain arrays": ({"data": (np.zeros((4, 2)), np.zeros(4))}, "data must be a FederatedData or"),
    "one array": ({"data": np.zeros((4, 2))}, "data must be a FederatedData or a pair of Arrays"),
    "a class": (
        {"method": Momentum},
        "method must be a name or an instance, got the class Momentum",
    ),
    "half a method": ({"method": Unfinished()}, "method must have the functions init, round and v"),
    "a number": ({"method": 3}, "method must have the functions init, round and view, but int has"),
}


@pytest.mark.parametrize(("own", "sentence"), OWN.values(), ids=OWN)
def test_own_things_that_are_none(own: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, DataError, ModelError)) as caught:
        run(tiny(tmp_path / "run"), **{"data": own_data(), **own})
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_configuration_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"config must be a sofa_fl\.Config, got dict"):
        run({"rounds": 3})  # type: ignore[arg-type]


def test_rows_that_do_not_exist() -> None:
    train, test = own_data()
    rows, none = np.arange(5), np.empty(0, dtype=np.int64)
    halves: Any = rows / 2
    for client, sentence in (
        (ClientData(rows + 1000, none, rows), "train of client 0 must be rows from 0 to 149, got"),
        (ClientData(rows, rows - 9, none), "holdout of client 0 must be rows from 0 to 149, got"),
        (ClientData(rows, none, rows + 60), "test of client 0 must be rows from 0 to 59, got rows"),
        (
            ClientData(halves, none, rows),
            "train of client 0 must be a one-dimensional array of row numbers",
        ),
    ):
        with pytest.raises(DataError, match=sentence):
            FederatedData(train, test, (client,), NUM_CLASSES)


@pytest.mark.parametrize("holdout", [2, 1, -0.1])
def test_a_holdout_that_is_no_fraction(holdout: float) -> None:
    train, _ = own_data()
    with pytest.raises(DataError, match=r"holdout must be at least 0 and below 1, got"):
        sofa_fl.deal(train, np.arange(len(train)) % 3, holdout=holdout)
