"""Rows and run folders of scenarios and faults, without runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sofa_fl.experiment.run.config import Config, config_to_dict
from sofa_fl.experiment.storage.run_folder import RunFolder
from study.rows.row_files import Row

ROUNDS, AT = 6, 3


def drifting(method: str, seed: int = 0, after: Sequence[float] = (), **more: object) -> Row:
    """A row of `swap`: 0.9 before the change in round 3, and then `after`, by default the same."""
    accuracy = [0.5, 0.8, 0.9, *(after or [0.9] * (ROUNDS + 1 - AT))]
    row: Row = {"setting": "swap", "method": method, "sharing": 0.0, "seed": seed}
    row |= {"samples_trained": 100, "seconds": 1.0, "engine": "stacked", "overrides": {}}
    row |= {"accuracy": accuracy, "worst": [x - 0.1 for x in accuracy], "changes": [AT]}
    row |= {"ari": [1.0] * (ROUNDS + 1), "edits": [0] * (ROUNDS + 1), "moved": [0] * (ROUNDS + 1)}
    return {**row, **more}


def still(method: str, seed: int = 0, **more: object) -> Row:
    """A row of a setting that stays as it is."""
    return {**drifting(method, seed, setting="groups", changes=[]), **more}


def faulty(method: str, seed: int = 0, end: float = 0.9, **more: object) -> Row:
    """A row of `faults`."""
    curve = [0.5, 0.8, end]
    row: Row = {"setting": "groups", "method": method, "sharing": 0.0, "seed": seed}
    row |= {"samples_trained": 100, "seconds": 1.0, "engine": "stacked", "overrides": {}}
    row |= {"accuracy": curve, "worst": curve, "ari": [1.0] * 3, "honest": curve}
    row |= {"heard": [24] * 3, "set_aside": [0] * 3, "finite": True, "honest_ari": [1.0] * 3}
    return {**row, **more}


def event(clusters: Sequence[Sequence[int]], **more: object) -> dict[str, Any]:
    """A round of a run, with these clusters under a root; every client's accuracy is 0.9."""
    clients = sorted(client for members in clusters for client in members)
    tree: dict[str, int | None] = {"100": None}
    for number, members in enumerate(clusters):
        tree[str(101 + number)] = 100
        tree |= {str(client): 101 + number for client in members}
    made: dict[str, Any] = {"event": "round", "client": {"mean": 0.9, "min": 0.8}}
    made |= {"clients": clients, "accuracies": [0.9] * len(clients), "tree": tree, "edits": []}
    return {**made, "path_loss": {"0": {"100": 0.5}}, **more}


def write_run(folder: Path, config: Config, events: Sequence[dict[str, Any]]) -> None:
    """A run folder with these rounds."""
    run = RunFolder.create(folder, config_to_dict(config))
    for number, each in enumerate(events):
        run.append({"round": number, **each})
