from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import events, write_synthetic

from sofa_fl.errors import RunError
from sofa_fl.report.page import RunReader, read_run
from tests.report.cases import EVENTS, event, write_run

TREE: dict[str, int | None] = {"0": 4, "1": 4, "2": 5, "3": 5, "4": 6, "5": 6, "6": None}


def test_a_run_as_one_object(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "my run"))
    assert (run["name"], run["title"], run["data"], run["seed"]) == (
        "my run",
        "SOFA-FL",
        "mnist",
        3,
    )
    assert run["summary"] is None
    first, second = run["history"]
    assert (first["num_clients"], first["num_clusters"], first["depth"]) == (4, 3, 2)
    assert second["edits"] == [
        {
            "edit": "graft",
            "node": 2,
            "onto": 4,
            "told": "client 2 moved from cluster 5 to cluster 4",
        }
    ]
    frame = second["frame"]
    assert (frame["clients"], frame["up"]) == ([0, 1, 2, 3], [4, 4, 4, 5])
    assert dict(zip(frame["clusters"], frame["above"])) == {6: None, 4: 6, 5: 6}
    assert frame["accuracy"] == [0.9, 0.95, None, 0.99]
    assert dict(zip(frame["clusters"], frame["loss"])) == {6: 0.6, 4: 0.3, 5: None}
    assert frame["losses"][:2] == [[0.5, 0.3, None], [0.7, None, None]]
    json.dumps(run, allow_nan=False)


def test_old_runs_lack_what_was_not_recorded_then(tmp_path: Path) -> None:
    frame = read_run(write_run(tmp_path / "run"))["history"][0]["frame"]
    assert {"samples", "positions", "shared", "disclosed"}.isdisjoint(frame)


def test_metrics_come_as_mean_and_range_and_the_score_by_its_name(tmp_path: Path) -> None:
    mae = {"mean": 123456.789, "min": 1e-9, "max": None, "values": [1e-9, None]}
    run = write_run(tmp_path / "run", [EVENTS[0] | {"metrics": {"mae": mae}, "metric": "r2"}])
    [record] = read_run(run)["history"]
    assert record["metrics"] == {"mae": {"mean": 123457.0, "min": 1e-9, "max": None}}
    assert record["metric"] == "r2"


def test_levels_say_what_they_are_good_for(tmp_path: Path) -> None:
    losses = {"0": {"6": 0.5, "4": 0.3, "0": 0.4}, "1": {"6": 0.7, "4": 0.9, "1": None}}
    run = read_run(write_run(tmp_path / "run", [event(0, TREE, path_loss=losses)]))
    assert run["history"][0]["levels"] == [
        {"level": 0, "loss": 0.4, "best": 0, "of": 1},
        {"level": 1, "loss": 0.6, "best": 1, "of": 2},
        {"level": 2, "loss": 0.6, "best": 1, "of": 2},
    ]


def test_clients_go_by_their_ids(tmp_path: Path) -> None:
    """Clients may come and go; those of a later round are others than those of the first."""
    later: dict[str, int | None] = {"1": 4, "3": 4, "9": 4, "4": None}
    changed = event(
        1,
        later,
        clients=[9, 1, 3],
        accuracies=[0.5, 0.6, 0.7],
        samples=[90, 10, 30],
        absent=[3],
        set_aside={"9": "too slow"},
        groups={"ari": [1.0], "purity": [0.5]},
        objective={"value": 1.5, "loss": 1.0, "siblings": 0.25, "parent": 0.25},
        edits=[{"edit": "join", "node": 9, "onto": 4}, {"edit": "leave", "node": 0}],
    )
    run = read_run(write_run(tmp_path / "run", [event(0, TREE), changed]))
    record = run["history"][1]
    frame = record["frame"]
    assert dict(zip(frame["clients"], frame["accuracy"])) == {9: 0.5, 1: 0.6, 3: 0.7}
    assert dict(zip(frame["clients"], frame["samples"])) == {9: 90, 1: 10, 3: 30}
    assert record["absent"] == [3]
    assert record["set_aside"] == {"9": "too slow"}
    assert record["groups"] == {"ari": [1.0], "purity": [0.5]}
    assert record["objective"]["value"] == 1.5
    assert len(record["edits"]) == 2
    assert all("9" in told["told"] or "0" in told["told"] for told in record["edits"])


def test_maps_of_later_rounds_are_turned_onto_the_first(tmp_path: Path) -> None:
    here = {"0": [1, 0], "1": [-1, 0], "2": [0, 2], "3": [0, -2]}
    there = {client: [y, x] for client, (x, y) in here.items()}
    run = read_run(
        write_run(
            tmp_path / "run", [event(0, TREE, positions=here), event(1, TREE, positions=there)]
        )
    )
    first, second = (record["frame"]["positions"] for record in run["history"])
    assert [list(place) for place in second] == [list(place) for place in first]


def test_reads_on_as_a_run_goes_on(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", EVENTS[:1])
    reader = RunReader(folder)
    assert len(reader.read_on()) == 1
    line = json.dumps(EVENTS[1]) + "\n"
    with (folder / "events.jsonl").open("a") as file:
        file.write(line[:40])
        file.flush()
        assert len(reader.read_on()) == 1
        file.write(line[40:])
    assert [record["round"] for record in reader.read_on()] == [0, 1]


@pytest.mark.parametrize("rewritten", [[0.1], [0.1, 0.2], [0.1, 0.2, 0.3, 0.4]])
def test_a_resumed_run_is_read_anew(tmp_path: Path, rewritten: list[float]) -> None:
    def rounds(means: list[float]) -> list[dict[str, Any]]:
        client = [{"mean": mean, "min": 0.5, "more": "x" * int(100 * mean)} for mean in means]
        return [
            event(i, TREE, client={"mean": c["mean"]}, pad=c["more"]) for i, c in enumerate(client)
        ]

    folder = write_run(tmp_path / "run", rounds([0.9, 0.8, 0.7]))
    reader = RunReader(folder)
    assert len(reader.read_on()) == 3
    text = "".join(json.dumps(e) + "\n" for e in rounds(rewritten))
    (folder / "events.jsonl").write_text(text)
    found = [record["client"]["mean"] for record in reader.read_on()]
    assert found == rewritten


def test_of_very_many_rounds_some_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sofa_fl.report.page.ROOM", 60)
    run = read_run(write_synthetic(tmp_path / "run", 12, 20))
    drawn = [record["round"] for record in run["history"] if "frame" in record]
    assert drawn == [0, 5, 10, 15, 20]
    assert len(run["history"]) == 21
    assert all("told" in edit for record in run["history"] for edit in record["edits"])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("events.jsonl", "no json\n"),
        ("events.jsonl", '{"event": "round"}\n'),
        ("events.jsonl", "[]\n"),
        ("config.yaml", "[1, 2"),
        ("config.yaml", "seed: 1"),
        ("summary.json", "{"),
    ],
)
def test_a_damaged_folder_is_one_sentence(tmp_path: Path, file: str, text: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / file).write_text(text)
    with pytest.raises(RunError, match="is damaged"):
        read_run(folder)


def test_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        read_run(tmp_path)


def test_synthetic_runs_are_like_real_ones() -> None:
    """Their edits lead from each tree to the next."""
    from sofa_fl.experiment.storage.events import edit_from_json
    from sofa_fl.report.history import tree_in
    from sofa_fl.topology.edits import apply_all

    made = events(40, 12)
    assert sum(len(e["edits"]) for e in made) > 5
    for before, after in pairwise(made):
        edits = [edit_from_json(edit) for edit in after["edits"]]
        assert apply_all(tree_in(before), edits).parent == tree_in(after).parent
