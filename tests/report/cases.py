"""A run folder written by hand: four clients, two clusters, and one graft in round 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = "method: sofa\nseed: 3\nrounds: 5\ndata:\n  name: mnist\ntitle: SOFA-FL\n"


def event(round: int, tree: dict[str, int | None], **more: Any) -> dict[str, Any]:
    accuracies = [0.9, 0.95, None, 0.99]
    return {
        "event": "round",
        "round": round,
        "rounds": 5,
        "client": {"mean": 0.9467, "min": 0.9},
        "accuracies": accuracies,
        "tree": tree,
        "edits": [],
        "path_loss": {"0": {"6": 0.5, "4": 0.3}, "1": {"6": 0.7, "4": float("nan")}},
        "pools": {"4": 12, "6": 3},
    } | more


EVENTS = [
    event(0, {"0": 4, "1": 4, "2": 5, "3": 5, "4": 6, "5": 6, "6": None}),
    event(
        1,
        {"0": 4, "1": 4, "2": 4, "3": 5, "4": 6, "5": 6, "6": None},
        edits=[{"edit": "graft", "node": 2, "onto": 4}],
    ),
]


def write_run(folder: Path, events: list[dict[str, Any]] | None = None) -> Path:
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    lines = [json.dumps(event) + "\n" for event in (EVENTS if events is None else events)]
    (folder / "events.jsonl").write_text("".join(lines))
    return folder
