"""The demo: what its story says happens in its data, and its end says what happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sofa_fl.cli import demo as demo_module
from sofa_fl.cli.demo import CHANGE, GROUPS, NEWCOMERS, SIZE, demo_config, demo_data
from sofa_fl.experiment.run.config import Config, load_config
from tests.cli.cases import Cli


def test_the_data_do_what_the_story_says() -> None:
    config = demo_config(0, None)
    data = demo_data(config)
    assert data.names[0] == "upright-1"
    first, later, last = (data.stage(round) for round in (0, NEWCOMERS, CHANGE))
    assert len(first.clients) == (len(GROUPS) - 1) * SIZE
    new = set(later.clients) - set(first.clients)
    assert {data.names[client] for client in new} == {f"right-{k}" for k in range(1, SIZE + 1)}
    before, after = later.truth[0], last.truth[0]
    moved = [client for client in later.clients if before[client] != after[client]]
    assert [data.names[client] for client in moved] == [f"{group}-{SIZE}" for group in GROUPS]


def test_it_runs_and_tells_what_happened(
    cli: Cli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller: what the tree makes of it is not the matter here."""

    def small(seed: int, out: str | None) -> Config:
        plain = {"num_train": 640, "num_test": 160, "partition": "iid", "name": "turned digits"}
        return load_config(
            {
                "seed": seed,
                "rounds": 7,
                "warmup": 2,
                "out": out,
                "engine": "sequential",
                "data": plain,
                "model": {"name": "mlp", "hidden": 8},
                "local": {"batches": 1, "batch_size": 8},
            }
        )

    monkeypatch.setattr(demo_module, "demo_config", small)
    result = cli("demo", "--out", "demo")
    assert result.exit_code == 0, result.stderr
    assert "12 clients see handwritten digits" in result.stderr
    for words in ("Round 3: 4 clients joined.", "Round 6: the data of 4 clients changed.", "End: "):
        assert words in result.stdout
    assert "upside-down-2" in result.stdout
    events = [json.loads(line) for line in Path("demo/events.jsonl").read_text().splitlines()]
    assert {event["round"]: event["data"] for event in events if "data" in event} == {
        3: {"joined": [12, 13, 14, 15]},
        6: {"changed": [3, 7, 11, 15]},
    }
    assert (work_dir / "demo" / "report.html").exists()
    assert cli("demo", "--quiet", "--out", "again").stdout == "again\n"
