"""The round loop: what a run leaves behind, own parts, and refusals before anything is lost."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sofa_fl.api.runs import resume, run
from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData
from sofa_fl.engine.base import LocalConfig, answered
from sofa_fl.errors import DataError, ModelError, RunError
from sofa_fl.experiment.run.config import load_config, parse_config
from sofa_fl.experiment.run.launch import old_objects_spared
from sofa_fl.experiment.storage.events import edit_from_json
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.federation import Federation
from sofa_fl.methods.method import Notes, View
from sofa_fl.methods.registry import title_of
from sofa_fl.models.flat import Vector, as_vector
from sofa_fl.topology.edits import apply_all
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from tests.engine.cases import NUM_CLASSES, SHAPE, make_data
from tests.experiment.cases import METHODS, TINY, events_of, own_data, summary_of, tiny

methods = pytest.mark.parametrize("values", METHODS.values(), ids=METHODS)


@methods
def test_a_run_leaves_its_folder(values: dict[str, Any], tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    config = tiny(tmp_path / "run", **values)
    result = run(config, data=own_data(), observers=[seen.append])
    assert result.run == tmp_path / "run"
    recorded = load_config(result.run / "config.yaml")
    plus = "" if config.method == "sofa" else "+"
    assert recorded.title == title_of(config.method) + plus
    data = replace(config.data, name="own")
    assert recorded == replace(config, data=data, title=recorded.title, own=("data",))
    events = events_of(result.run)
    assert [event["round"] for event in events] == [0, 1, 2, 3]
    kinds = [event["event"] for event in seen if event["event"] != "scoring"]
    assert kinds == ["start"] + ["round"] * 4 + ["end"]
    assert seen[-1]["summary"] == json.loads((result.run / "summary.json").read_text())
    names = [path.name for path in sorted((result.run / "checkpoints").iterdir())]
    assert names == ["round-00002.safetensors", "round-00003.safetensors"]
    summary = result.summary
    last = events[-1]
    measured = last.get("measured", last["clients"])  # others keep an older score in events
    now = zip(last["clients"], last["accuracies"])
    assert summary["client"]["accuracies"] == [x if c in measured else None for c, x in now]
    assert summary["samples_trained"] == events[-1]["samples_trained"]
    assert len(summary["client"]["accuracies"]) == 5
    assert {int(node) for node in events[-1]["tree"]} == set(result.tree.parent)
    for event in events:
        assert len(event["local_loss"]) >= 1
        assert all(0 <= fraction <= 1 for fraction in event["disclosed"])
        assert set(event["pools"]) <= set(event["tree"])


def test_folding_the_edits_over_the_first_tree_gives_the_last(tmp_path: Path) -> None:
    num_edits = 0
    lively = {  # by features, trees of nine clients change a lot
        "sofa": {**TINY["sofa"], "position": "latent"},
        "local": {**TINY["local"], "learning_rate": 0.03},
        "data": {**TINY["data"], "num_clients": 9},
    }
    for seed in range(4):
        result = run(tiny(tmp_path / str(seed), seed=seed, rounds=5, **lively), data=own_data())
        first, *rest = events_of(result.run)
        parent = {NodeId(int(node)): up for node, up in first["tree"].items()}
        tree = Tree(parent, tuple(map(NodeId, range(9))), 1 + max(parent))
        for event in rest:
            for record in event["edits"]:
                tree = apply_all(tree, [edit_from_json(record)])
                num_edits += 1
            assert tree.parent == {int(node): up for node, up in event["tree"].items()}
        assert tree == result.tree
        counts: dict[str, int] = result.summary["edits"]
        assert sum(counts.values()) == sum(len(event["edits"]) for event in rest)
    assert num_edits > 9, "or this test shows nothing"


@pytest.mark.parametrize("method", ["sofa", "fedavg"])
def test_a_summary_says_how_well_the_tree_agrees_with_known_groups(
    method: str, tmp_path: Path
) -> None:
    groups = {"num_clients": 8, "partition": "groups", "num_rotations": 2, "num_swaps": 2}
    result = run(tiny(tmp_path / "run", method=method, data=groups), data=own_data())
    found = result.summary["groups"]
    assert [len(found[key]) for key in ("ari", "purity")] == [2, 2]
    if method == "fedavg":
        assert found["ari"] == [0, 0]
        assert found["purity"] == pytest.approx([2 / 8, 4 / 8])
        assert found["fscore"] == pytest.approx([2 / 5, 2 / 3])
    without = run(tiny(tmp_path / "without", method=method), data=own_data())
    assert "groups" not in without.summary


@methods
def test_runs_repeat(values: dict[str, Any], tmp_path: Path) -> None:
    runs = [run(tiny(tmp_path / name, **values), data=own_data()).run for name in ("a", "b")]
    assert events_of(runs[0]) == events_of(runs[1])
    assert summary_of(runs[0]) == summary_of(runs[1])


def test_engines_give_the_same_run(tmp_path: Path) -> None:
    for engine in ("sequential", "workers"):
        run(tiny(tmp_path / engine, engine=engine), data=own_data())
    assert events_of(tmp_path / "sequential") == events_of(tmp_path / "workers")
    assert summary_of(tmp_path / "sequential") == summary_of(tmp_path / "workers")


def test_bundled_data_and_a_name_for_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = {**TINY, "rounds": 1, "data": {"num_clients": 3, "num_train": 120, "num_test": 40}}
    folders = [run(parse_config(small)).run for _ in range(2)]
    assert folders == [Path("runs/sofa-mnist-0"), Path("runs/sofa-mnist-0-2")]
    assert load_config(folders[1] / "config.yaml").out == "runs/sofa-mnist-0-2"


def test_own_data_dealt_out_already(tmp_path: Path) -> None:
    data = make_data()
    result = run(tiny(tmp_path / "run"), data=data)
    assert len(result.summary["client"]["accuracies"]) == len(data.clients)


def test_a_client_without_test_samples_has_no_accuracy(tmp_path: Path) -> None:
    data = make_data()
    bare = replace(data.clients[2], test=np.empty(0, dtype=np.int64))
    data = replace(data, clients=(*data.clients[:2], bare, data.clients[3]))
    result = run(tiny(tmp_path / "run"), data=data)
    accuracies = result.summary["client"]["accuracies"]
    assert [x is None for x in accuracies] == [False, False, True, False]
    assert result.summary["client"]["mean"] == pytest.approx(
        np.mean([x for x in accuracies if x is not None])
    )
    text = (result.run / "summary.json").read_text() + (result.run / "events.jsonl").read_text()
    assert "NaN" not in text, "JSON has no such number"


def test_nobody_to_score_is_an_error(tmp_path: Path) -> None:
    data = make_data()
    nothing = np.empty(0, dtype=np.int64)
    clients = tuple(replace(client, test=nothing) for client in data.clients)
    with pytest.raises(DataError, match="no client can be scored"):
        run(tiny(tmp_path / "run"), data=replace(data, clients=clients))


def own_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, NUM_CLASSES))


def another_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, NUM_CLASSES))


def test_own_network(tmp_path: Path) -> None:
    result = run(tiny(tmp_path / "run"), data=own_data(), network=own_network)
    assert len(as_vector(result.view.served[NodeId(0)])) == 64 * 5 + 5 + 5 * 4 + 4
    again = resume(result.run, data=own_data(), network=own_network)
    assert again.summary["client"] == result.summary["client"]
    with pytest.raises(RunError, match=r"your own network.*sofa_fl\.resume\(\.\.\., network="):
        resume(result.run, data=own_data())
    with pytest.raises(RunError, match="other data or another network"):
        resume(result.run, data=own_data(), network=another_network)


def test_an_own_network_that_does_not_fit_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        run(tiny(tmp_path / "run"), data=own_data(), network=lambda: nn.Linear(3, 2))
    assert not (tmp_path / "run").exists()


def test_regression_on_own_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6)).astype(np.float32)
    arrays = Arrays(x, (x @ rng.normal(size=6)).astype(np.float32))
    config = tiny(tmp_path / "run", data={"num_clients": 4, "partition": "iid"}, rounds=2)
    config = replace(config, local=LocalConfig(batches=60, batch_size=16, learning_rate=1e-2))
    result = run(config, data=(arrays, arrays))
    assert result.summary["client"]["mean"] > 0.8  # of the variance explained


class LocalOnly:
    """An own method, as the docstring of `sofa_fl.methods.method` has it."""

    def init(self, fed: Federation) -> tuple[dict[NodeId, Vector], Notes]:
        return self.round(dict.fromkeys(fed.clients, fed.initial()), fed)

    def round(
        self, state: dict[NodeId, Vector], fed: Federation
    ) -> tuple[dict[NodeId, Vector], Notes]:
        outcomes = fed.train([fed.task(client, state[client]) for client in fed.clients])
        heard = answered(fed.clients, outcomes)
        return state | {c: outcome.params for c, outcome in heard.items()}, Notes()

    def view(self, state: dict[NodeId, Vector]) -> View:
        return View(tree=flat_tree(list(state)), models=state, served=state)


def stop_after(round: int) -> Sequence[Any]:
    def observer(event: dict[str, Any]) -> None:
        if event.get("round") == round:
            raise KeyboardInterrupt

    return [observer]


def test_own_method(tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "whole"), data=own_data(), method=LocalOnly())
    with pytest.raises(KeyboardInterrupt):
        run(tiny(tmp_path / "cut"), data=own_data(), method=LocalOnly(), observers=stop_after(1))
    again = resume(tmp_path / "cut", data=own_data(), method=LocalOnly())
    for client, model in whole.view.served.items():
        assert torch.equal(as_vector(again.view.served[client]), as_vector(model))
    assert events_of(tmp_path / "cut") == events_of(tmp_path / "whole")


class Frugal(LocalOnly):
    """Lets go of the old models before it makes new ones."""

    gone: list[bool]

    def round(
        self, state: dict[NodeId, Vector], fed: Federation
    ) -> tuple[dict[NodeId, Vector], Notes]:
        old = weakref.ref(state[NodeId(0)])
        starts = {client: model.clone() for client, model in state.items()}
        del state
        if fed.round:
            self.gone.append(old() is None)
        return super().round(starts, fed)


def test_nobody_but_the_method_holds_an_old_state(tmp_path: Path) -> None:
    """But for the writer, as long as it writes: here after the warm-up and the last round."""
    method = Frugal()
    method.gone = []
    run(tiny(tmp_path / "run", rounds=4, save_every=9), data=own_data(), method=method)
    assert method.gone[1:] == [True] * 3


def test_an_own_method_that_does_not_say_what_its_state_is(tmp_path: Path) -> None:
    class Silent(LocalOnly):
        def init(self, fed):  # type: ignore[no-untyped-def]
            return super().init(fed)

    result = run(tiny(tmp_path / "run"), data=own_data(), method=Silent())
    with pytest.raises(RunError, match="must annotate init"):
        resume(result.run, data=own_data(), method=Silent())


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    run(tiny(tmp_path / "run", rounds=1), data=own_data())
    before = (tmp_path / "run" / "events.jsonl").read_bytes()
    with pytest.raises(RunError, match="is not empty; resume it"):
        run(tiny(tmp_path / "run"), data=own_data())
    assert (tmp_path / "run" / "events.jsonl").read_bytes() == before


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write the run folder"):
        run(tiny(tmp_path / "file" / "run"), data=own_data())


@methods
def test_training_that_blows_up_is_an_error(values: dict[str, Any], tmp_path: Path) -> None:
    local = {"learning_rate": 1e30, "optimizer": "sgd"}
    config = tiny(tmp_path / "run", **{**values, "local": local})
    with pytest.raises(ModelError, match=r"round 0 has values that are not finite; lower local\."):
        run(config, data=own_data())


@pytest.mark.parametrize("num_clients", [1, 2])
@methods
def test_few_clients(values: dict[str, Any], num_clients: int, tmp_path: Path) -> None:
    few = {"num_clients": num_clients, "partition": "iid"}
    result = run(tiny(tmp_path / "run", **{**values, "data": few, "rounds": 2}), data=own_data())
    assert len(result.summary["client"]["accuracies"]) == num_clients
    assert result.tree.depth == num_clients - 1


def test_clients_of_one_class_and_one_sample(tmp_path: Path) -> None:
    """As small as data can be: no holdout, a batch larger than all there is."""
    rows = np.arange(4)
    arrays = Arrays(np.zeros((4, *SHAPE), dtype=np.uint8), np.array([0, 1, 0, 1]))
    nothing = np.empty(0, dtype=np.int64)
    clients = tuple(ClientData(rows[i : i + 1], nothing, rows[i : i + 1]) for i in range(4))
    result = run(tiny(tmp_path / "run"), data=FederatedData(arrays, arrays, clients, 2))
    assert len(result.view.served) == 4


def test_every_round_records_the_objective(tmp_path: Path) -> None:
    run(tiny(tmp_path / "run", method="sofa"))
    for event in RunFolder.open(tmp_path / "run").events():
        terms = event["objective"]
        value = terms.pop("value")
        assert value == pytest.approx(sum(terms.values()))
        assert set(terms) == {"loss", "siblings", "parent"}
    run(tiny(tmp_path / "other", method="fedavg"))
    assert all("objective" not in e for e in RunFolder.open(tmp_path / "other").events())


def test_with_a_gpu_full_collections_leave_out_what_was_there_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with old_objects_spared():
        assert not gc.get_freeze_count()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with old_objects_spared():
        assert gc.get_freeze_count() > 10_000
    assert not gc.get_freeze_count()
