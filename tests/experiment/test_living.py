"""Runs in which data change and clients come, go and fail: recorded, resumed to the same end."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sofa_fl.api.runs import resume, run
from sofa_fl.data.concepts import Concept, Phase
from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.engine.faulty import draw_bad
from sofa_fl.experiment.run.config import load_config
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.events import edit_from_json
from sofa_fl.experiment.storage.saving import RunProgress
from sofa_fl.guard import Register
from sofa_fl.topology.edits import apply_all
from sofa_fl.topology.tree import NodeId, Tree
from tests.experiment.cases import TINY, events_of, own_data, summary_of, tiny
from tests.experiment.test_resume import killed

DATA = {
    "num_clients": 8,
    "partition": "iid",
    "num_rotations": 2,
    "num_swaps": 2,
    "min_samples": 4,
    "holdout": 0.2,
}
FAULTS = {
    "participation": 0.7,
    "faults": {"dropout": 0.2, "straggle": 0.3, "bad": 0.3},
    "guard": {"patience": 1, "quarantine": 2},
}
METHODS: dict[str, dict[str, Any]] = {
    "sofa": {},
    "sofa cascade, robust": {
        "sofa": {**TINY["sofa"], "propagation": "cascade", "eta": 0.5},
        "guard": {**FAULTS["guard"], "aggregate": "median"},  # type: ignore[dict-item]
    },
    "local": {"method": "local"},
    "fedavg": {"method": "fedavg"},
    "ditto": {"method": "ditto"},
    "hypcluster": {"method": "hypcluster"},
    "oracle": {"method": "oracle"},
    "feddrift": {"method": "feddrift"},
}


def living(out: Path, name: str = "churn", **values: Any) -> Any:
    scenario = {"name": name, "at": 2, "lasts": 1, "fraction": 0.5}
    data = {**DATA, "scenario": scenario}
    return tiny(out, **{"rounds": 4, "data": data, "keep": 9, **FAULTS, **values})


@pytest.mark.parametrize("values", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("scenario", ["churn", "recur"])
def test_resumed_is_whole(values: dict[str, Any], scenario: str, tmp_path: Path) -> None:
    whole = run(living(tmp_path / "whole", scenario, **values), data=own_data()).run
    cut = tmp_path / "cut"
    going = partial(run, living(cut, scenario, **values), data=own_data())
    for round in (1, 2, 3, 4):
        killed(round, going)
        going = partial(resume, cut, data=own_data())
    going()
    assert events_of(cut) == events_of(whole)
    assert summary_of(cut) == summary_of(whole)


@pytest.mark.parametrize("scenario", ["churn", "swap"])
def test_a_run_that_has_ended_writes_the_summary_of_its_last_round(
    scenario: str, tmp_path: Path
) -> None:
    """Not one of the clients and samples that there were at first."""
    whole = run(living(tmp_path / "run", scenario), data=own_data()).run
    events, summary = events_of(whole), summary_of(whole)
    (whole / "summary.json").unlink()
    resume(whole, data=own_data())
    assert (events_of(whole), summary_of(whole)) == (events, summary)


def test_who_is_in_quarantine_is_in_the_checkpoint(tmp_path: Path) -> None:
    values = {"faults": {"bad": 0.3, "kind": "nan"}, "participation": 1.0}
    config = living(tmp_path / "run", "none", **values)
    folder = run(config, data=own_data()).run
    bad = draw_bad(config.faults, 8, config.seed)
    assert len(bad) == 2
    clients = sorted(bad)
    expected = Register(
        flaws=dict.fromkeys(clients, 1),
        last=dict.fromkeys(clients, 0),
        back_at=dict.fromkeys(clients, 3),
    )
    for round in (0, 1, 2):  # out after the warm-up, for two rounds
        path = folder / "checkpoints" / f"round-{round:05d}.safetensors"
        assert checkpoint.load(path, "progress", RunProgress).register == expected
    again = checkpoint.load(path.with_stem("round-00003"), "progress", RunProgress).register
    assert again == Register(
        flaws=dict.fromkeys(clients, 2),
        last=dict.fromkeys(clients, 3),
        back_at=dict.fromkeys(clients, 6),
    )
    found = [(event.get("set_aside"), event.get("absent")) for event in events_of(folder)]
    flaws, names = {str(c): "not finite" for c in sorted(bad)}, sorted(bad)
    assert found == [(flaws, None), (None, names), (None, names), (flaws, None), (None, names)]
    out = [event.get("quarantined") for event in events_of(folder)]
    assert out == [None, names, names, None, names], "from the round after the flaw on"


def test_events_say_who_is_there_and_who_was_heard(tmp_path: Path) -> None:
    events = events_of(run(living(tmp_path / "run"), data=own_data()).run)
    first, later = events[0]["clients"], events[2]["clients"]
    assert first == list(range(8))
    assert len(set(later) - set(first)) == len(set(first) - set(later)) == 4
    for event in events:
        there = first if event["round"] < 2 else later
        assert event["clients"] == there
        assert len(event["accuracies"]) == len(event["disclosed"]) == len(there)
        assert {int(client) for client in event["path_loss"]} <= set(there)
        absent, aside = set(event.get("absent", [])), set(map(int, event.get("set_aside", {})))
        assert set(event.get("quarantined", [])) <= absent
        assert absent | aside <= set(there)
        assert not absent & aside
        assert len(event["groups"]["ari"]) == 1
        if event["round"]:  # three tenths are not even asked
            assert len(absent) >= 2
    assert any("set_aside" in event for event in events)
    assert any("quarantined" in event for event in events)


def test_where_all_are_heard_there_is_nothing_to_say_of_it(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"participation": 1.0, "faults": {}, "guard": {}}
    for event in events_of(run(living(tmp_path / "run", **plain), data=own_data()).run):
        assert not event.keys() & {"absent", "set_aside", "quarantined"}


def test_folding_the_edits_over_the_first_tree_gives_the_last(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"participation": 0.8, "faults": {"dropout": 0.2}}
    result = run(living(tmp_path / "run", **plain), data=own_data())
    first, *rest = events_of(result.run)
    parent = {NodeId(int(node)): up for node, up in first["tree"].items()}
    clients = tuple(sorted(node for node in parent if node < 12))
    tree = Tree(parent, clients, 1 + max(parent))
    kinds = set()
    for event in rest:
        for record in event["edits"]:
            kinds.add(record["edit"])
            tree = apply_all(tree, [edit_from_json(record)])
        assert tree.parent == {int(node): up for node, up in event["tree"].items()}
    assert {"join", "leave"} <= kinds
    assert result.summary["edits"]["leave"] == 4


def test_a_summary_is_of_those_who_are_there_at_the_end(tmp_path: Path) -> None:
    result = run(living(tmp_path / "run"), data=own_data())
    last = events_of(result.run)[-1]
    assert result.summary["client"]["clients"] == last["clients"]
    assert result.summary["client"]["accuracies"] == last["accuracies"]
    assert result.summary["groups"] == last["groups"]


def test_engines_give_the_same_run(tmp_path: Path) -> None:
    """Who fails hangs on tasks, not on who runs them."""
    for engine in ("sequential", "workers"):
        run(living(tmp_path / engine, engine=engine), data=own_data())
    assert events_of(tmp_path / "sequential") == events_of(tmp_path / "workers")


def test_a_run_of_an_own_script(tmp_path: Path) -> None:
    script = [
        Phase(0, {0: Concept(), 1: Concept(), 2: Concept(90.0)}),
        Phase(2, {0: Concept(90.0), 2: Concept(90.0), 3: Concept()}),
    ]
    data = federate(DataConfig(partition="iid", min_samples=4), 0, own_data(), script)
    result = run(tiny(tmp_path / "run", rounds=3), data=data)
    assert [event["clients"] for event in events_of(result.run)] == [[0, 1, 2]] * 2 + [
        [0, 2, 3]
    ] * 2
    assert set(result.view.served) == {0, 2, 3}
    text = (result.run / "events.jsonl").read_text()
    assert all(np.isfinite(json.loads(line)["client"]["mean"]) for line in text.splitlines())


def test_nobody_answers_a_whole_round_and_the_run_goes_on(tmp_path: Path) -> None:
    """With one client in ten asked, and most of them lost."""
    values = {"participation": 0.1, "faults": {"dropout": 0.7}, "seed": 1, "rounds": 6}
    result = run(living(tmp_path / "run", "none", **values), data=own_data())
    heard = [
        len(event["clients"]) - len(event.get("absent", [])) for event in events_of(result.run)
    ]
    assert heard[0] < 8
    assert min(heard) == 0
    assert max(heard[1:]) <= 1
    losses = [event["local_loss"] for event in events_of(result.run)]
    assert [bool(curve) for curve in losses] == [number > 0 for number in heard]


def test_the_configuration_of_it_all_is_written_down(tmp_path: Path) -> None:
    config = living(tmp_path / "run")
    written = load_config(run(config, data=own_data()).run / "config.yaml")
    data = replace(config.data, name="own")
    assert written == replace(config, data=data, title="SOFA-FL", own=("data",))
    assert config.data.scenario.name == "churn"
    assert config.faults.are_there
