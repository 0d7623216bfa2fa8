"""What has left each site in a run, as far as the server received it: a file in the run folder.

A site's own audit log says the same of all runs, and no server can change that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.transport.wire_message import WireMessage, left_in

FILE = "left.json"
PARTS = ("train", "holdout", "test")  # of a site's samples, each with a privacy budget


class Received:
    """How many models, scores, samples and bytes came from each client, also before a restart."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.by_client: dict[str, dict[str, Any]] = {}
        if file is not None and file.exists():
            self.by_client = json.loads(file.read_text(encoding="utf-8"))

    def add(self, client: NodeId, answer: WireMessage) -> None:
        """Add what an answer of a client holds."""
        total = self.by_client.setdefault(str(client), {})
        for name, number in left_in(answer).items():
            total[name] = total.get(name, 0) + number
        if spent := spent_in(answer):
            total["epsilon"] = {**total.get("epsilon", {}), **spent}

    def save(self) -> None:
        if self.file is not None and self.by_client:
            in_order = sorted(self.by_client.items(), key=lambda item: int(item[0]))
            write_text(self.file, json.dumps(dict(in_order)) + "\n")


def spent_in(answer: WireMessage) -> dict[str, float]:
    """What a private site says that its answers have cost so far, by the part of its samples."""
    told = answer.header.get("spent")
    found = {part: told.get(part) for part in PARTS} if isinstance(told, Mapping) else {}
    return {
        part: round(float(value), 3)
        for part, value in found.items()
        if isinstance(value, float) and isfinite(value)
    }
