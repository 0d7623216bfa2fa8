from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.cli.cases import Cli, assert_refused


@pytest.mark.parametrize("round", [0, 1, 2])
def test_any_round(cli: Cli, finished: Path, round: int) -> None:
    event = json.loads((finished / "events.jsonl").read_text().splitlines()[round])
    result = cli("tree", str(finished), "--round", str(round))
    assert result.exit_code == 0
    assert ("the warm-up" if round == 0 else f"round {round} of 2") in result.stdout
    for client, accuracy in enumerate(event["accuracies"]):
        assert f"client {client:<3} {accuracy:.2%}" in result.stdout
    for cluster in set(event["tree"].values()) - {None}:
        assert f"cluster {cluster} " in result.stdout
    assert ("Edits" in result.stdout) == (round > 0)
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_the_last_round_is_the_default(cli: Cli, finished: Path) -> None:
    assert cli("tree", str(finished)).stdout == cli("tree", str(finished), "--round", "2").stdout


def test_json(cli: Cli, finished: Path) -> None:
    event = json.loads((finished / "events.jsonl").read_text().splitlines()[-1])
    record = json.loads(cli("tree", str(finished), "--json").stdout)
    assert record["parent"] == event["tree"]
    assert [row["accuracy"] for row in record["clients"]] == event["accuracies"]
    assert record["edits"] == event["edits"]
    assert {row["cluster"] for row in record["clusters"]} == set(event["tree"].values()) - {None}
    assert sorted(record["clusters"][0]["clients"]) == list(range(6))


def test_picture(cli: Cli, finished: Path, work_dir: Path) -> None:
    result = cli("tree", str(finished), "--svg", "tree.svg")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "wrote tree.svg\n")
    assert ElementTree.parse(work_dir / "tree.svg").getroot().tag.endswith("svg")
    assert [path.name for path in work_dir.iterdir()] == ["tree.svg"]


def test_while_the_run_is_going_on(cli: Cli, run_folder: Path) -> None:
    events = run_folder / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    (run_folder / "summary.json").unlink()
    events.write_text(lines[0] + lines[1][:50])  # the second line is being written
    assert "the warm-up" in cli("tree", str(run_folder)).stdout
    events.unlink()
    assert_refused(cli("tree", str(run_folder)), "warm-up is still running")


def test_strange_names_are_text(cli: Cli, run_folder: Path, work_dir: Path) -> None:
    config = yaml.safe_load((run_folder / "config.yaml").read_text())
    config["data"]["name"] = "[red]<b>&\x1b[31m"
    (run_folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert "[red]<b>&\\x1b[31m" in cli("tree", str(run_folder)).stdout
    assert cli("tree", str(run_folder), "--svg", "tree.svg").exit_code == 0
    text = (work_dir / "tree.svg").read_text()
    assert "[red]&lt;b&gt;&amp;\\x1b[31m" in text
    ElementTree.fromstring(text)


def test_many_clients_are_collapsed(cli: Cli, run_folder: Path) -> None:
    num_clients = 41
    parent: dict[str, int | None] = {
        str(client): 50 + client % 2 for client in range(num_clients - 1)
    }
    parent |= {"40": 52, "50": 52, "51": 52, "52": None}  # client 40 hangs from the root
    event = {
        "event": "round", "round": 0, "rounds": 2, "client": {"mean": 0.9, "min": 0.9},
        "accuracies": [0.9] * num_clients, "tree": parent, "edits": [], "path_loss": {},
        "pools": {},
    }  # fmt: skip
    (run_folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    short = cli("tree", str(run_folder)).stdout
    assert "cluster 50  20 clients, 90.00%" in short
    assert "1 client, 90.00%" in short
    assert "client 7 " not in short
    assert "--all" in short
    assert "client 7 " in cli("tree", str(run_folder), "--all").stdout
