"""Of many clients a round costs, and its line tells, what those have to do with who take part."""

from __future__ import annotations

import cProfile
import json
import pstats
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from sofa_fl.api.runs import resume, run
from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData
from sofa_fl.experiment.run import launch
from sofa_fl.experiment.run.config import parse_config
from sofa_fl.experiment.run.loop import Experiment, Own
from sofa_fl.experiment.storage import events
from sofa_fl.experiment.storage.events import Event, from_line, to_line
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.report.page import RunReader
from tests.experiment.cases import own_data, tiny

ASKED = 6


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MANY", 3)


def recorded(out: Path, **values: Any) -> list[Event]:
    values = {"participation": 0.6, "evaluate": {"clients": 2, "every": 2}, **values}
    run(tiny(out, rounds=4, sharing={"ratio": 0}, **values), data=own_data())
    return told(out)


def told(out: Path) -> list[Event]:
    """What is read of a run, but for times and for who was absent, which is told otherwise."""
    left_out = ("seconds", "absent", "asked", "scores")
    events = RunFolder.open(out).events()
    return [{k: v for k, v in event.items() if k not in left_out} for event in events]


@pytest.mark.parametrize("method", ["sofa", "fedavg"])
def test_lines_leave_out_what_is_the_same_and_are_read_as_before(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = recorded(tmp_path / "plain", method=method)
    pages = RunReader(tmp_path / "plain").read_on()
    monkeypatch.setattr(events, "MANY", 3)
    assert recorded(tmp_path / "many", method=method) == expected
    lines = [json.loads(x) for x in (tmp_path / "many/events.jsonl").read_text().splitlines()]
    assert lines[0]["same"] == []
    for line in lines[1:]:
        assert {"clients", "samples", "disclosed"} <= set(line["same"])
        assert not line.keys() & set(line["same"])
        assert len(line.get("scores", ())) == len(line["measured"])
        assert len(line["asked"]) == 3
    same = [{**page, "absent": None, "seconds": None} for page in pages]
    found = RunReader(tmp_path / "many").read_on()
    assert [{**page, "absent": None, "seconds": None} for page in found] == same


@pytest.mark.usefixtures("few_are_many")
def test_a_resumed_run_writes_lines_that_are_read_alike(tmp_path: Path) -> None:
    expected = recorded(tmp_path / "whole")
    config = tiny(
        tmp_path / "part",
        rounds=4,
        sharing={"ratio": 0},
        participation=0.6,
        evaluate={"clients": 2, "every": 2},
    )

    class StopError(BaseException):
        pass

    def stop(event: Event) -> None:
        if event.get("round") == 2 and event["event"] == "round":
            raise StopError

    with pytest.raises(StopError):
        launch.run(config, Own(data=own_data()), [stop])
    resume(tmp_path / "part", data=own_data())
    assert told(tmp_path / "part") == expected


def test_what_changes_is_written() -> None:
    clients = list(range(events.MANY + 1))
    scores: list[float | None] = [None] * len(clients)
    first = {"clients": clients, "tree": {"0": None}, "accuracies": scores, "measured": []}
    second = {**first, "tree": {"0": 1, "1": None}, "accuracies": [0.5, *scores[1:]]}
    second |= {"measured": [0], "scores": [0.5]}
    line = to_line(second, first)
    assert line == {
        "tree": {"0": 1, "1": None},
        "measured": [0],
        "scores": [0.5],
        "same": ["clients"],
    }
    assert from_line(line, first) == second
    other = {**second, "clients": [*clients[1:], -1], "measured": [-1]}
    read = from_line(to_line(other, second), second)
    assert read == {key: value for key, value in other.items() if key != "scores"}


def many(num: int) -> FederatedData:
    rng = np.random.default_rng(0)
    arrays = Arrays(rng.normal(size=(4 * num, 3)).astype(np.float32), np.arange(4 * num) % 2)
    rows = np.arange(4 * num).reshape(num, 4)
    clients = tuple(ClientData(own[1:], own[:1], own[:2]) for own in rows)
    return FederatedData(arrays, arrays, clients, 2)


def network() -> nn.Module:
    return nn.Linear(3, 2)


def spent(method: str, num: int, out: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Function calls of a round of `ASKED` of `num` clients, and the most memory that it took."""
    close, profile, found = Experiment.close_round, cProfile.Profile(), []

    def closing(self: Experiment, folder: RunFolder, fed: Any, *rest: Any) -> None:
        close(self, folder, fed, *rest)
        if fed.round == 2:
            tracemalloc.start()
            profile.enable()
        elif fed.round == 3:
            profile.disable()
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    config = parse_config(
        {
            "method": method,
            "rounds": 4,
            "warmup": 1,
            "warmup_participation": ASKED / num,
            "participation": ASKED / num,
            "engine": "sequential",
            "save_every": 4,
            "score_levels": False,
            "sharing": {"ratio": 0},
            "evaluate": {"clients": 4},
            "local": {"batches": 1, "batch_size": 2},
            "out": str(out),
        }
    )
    with monkeypatch.context() as patch:
        patch.setattr(Experiment, "close_round", closing)
        launch.run(config, Own(data=many(num), network=network))
    calls = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return calls, found[0]


@pytest.mark.parametrize("method", ["fedavg", "sofa"])
def test_a_round_costs_what_its_clients_cost(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MANY", 100)
    few, more = 200, 8000
    calls, memory = spent(method, few, tmp_path / "few", monkeypatch)
    more_calls, more_memory = spent(method, more, tmp_path / "more", monkeypatch)
    assert more_calls < calls + (more - few) / 2
    # The list of all scores is copied, at a pointer each.
    assert more_memory < memory + 20 * (more - few)


def test_those_left_out_of_the_warm_up_join_when_they_are_asked(tmp_path: Path) -> None:
    config = replace(tiny(tmp_path / "run", rounds=6), participation=0.4, warmup_participation=0.4)
    run(config, data=own_data())
    events = list(RunFolder.open(tmp_path / "run").events())
    assert len(events[0]["positions"]) == 2
    known = [set(map(int, event["tree"])) & set(event["clients"]) for event in events]
    assert len(known[0]) == 2
    assert all(before <= after for before, after in pairwise(known))
    joined = [edit for event in events for edit in event["edits"] if edit["edit"] == "join"]
    assert len(known[-1]) == 2 + len(joined) > 3
