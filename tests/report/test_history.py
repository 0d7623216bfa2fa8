from __future__ import annotations

from pathlib import Path

import pytest

from sofa_fl.errors import RunError
from sofa_fl.report.history import read_round
from sofa_fl.topology.edits import Graft
from sofa_fl.topology.tree import NodeId
from tests.report.cases import CONFIG, EVENTS, event, write_run


def test_last_round(tmp_path: Path) -> None:
    record = read_round(write_run(tmp_path / "run"))
    assert (record.method, record.data, record.seed) == ("sofa", "mnist", 3)
    assert (record.round, record.rounds) == (1, 5)
    assert record.tree.clients == (0, 1, 2, 3)
    assert record.tree.clients_of(NodeId(4)) == (0, 1, 2)
    assert record.accuracy == {0: 0.9, 1: 0.95, 2: None, 3: 0.99}
    assert record.accuracies_below(NodeId(4)) == [0.9, 0.95]
    assert record.loss == {6: pytest.approx(0.6), 4: 0.3}  # what is no number does not count
    assert record.pool == {4: 12, 6: 3}
    assert record.edits == (Graft(NodeId(2), NodeId(4)),)
    assert record.told == ("client 2 moved from cluster 5 to cluster 4",)


def test_early_round(tmp_path: Path) -> None:
    record = read_round(write_run(tmp_path / "run"), 0)
    assert record.round == 0
    assert record.tree.clients_of(NodeId(4)) == (0, 1)
    assert record.told == ()


def test_round_being_written(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"event": "round", "rou')
    assert read_round(folder).round == 1


def test_round_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has rounds 0 to 1, not 7"):
        read_round(write_run(tmp_path / "run"), 7)
    with pytest.raises(RunError, match="warm-up is still running"):
        read_round(write_run(tmp_path / "empty", []))
    with pytest.raises(RunError, match="not a run folder"):
        read_round(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        event(0, {"0": 4, "1": 4, "2": 4, "3": 4}),  # no root
        event(0, {"4": None}),  # no clients
        event(0, {"x": None}),
        event(0, EVENTS[0]["tree"], edits=[{"edit": "graft", "node": 2, "onto": 99}]),
        event(0, EVENTS[0]["tree"], edits=[{"edit": "burn"}]),
        event(0, EVENTS[0]["tree"], pools=[]),
        {"event": "round", "round": 0},
        {},
    ],
)
def test_damaged_record(tmp_path: Path, damage: dict[str, object]) -> None:
    folder = write_run(tmp_path / "run", [EVENTS[0], damage])
    with pytest.raises(RunError, match="damaged"):
        read_round(folder)


@pytest.mark.parametrize("config", ["", "[", "method: sofa\n", CONFIG.replace("3", "x")])
def test_damaged_configuration(tmp_path: Path, config: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "config.yaml").write_text(config)
    with pytest.raises(RunError, match="damaged"):
        read_round(folder)
