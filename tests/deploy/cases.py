"""A federation without Flower: nodes in this process, and a post that can lose or spoil letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sofa_fl.deploy.machine.disclosure import MemoryShelf
from sofa_fl.deploy.machine.machine_data import NodeData, part_of
from sofa_fl.deploy.machine.site import Site
from sofa_fl.deploy.transport.run_setup import Setup
from sofa_fl.deploy.transport.wire import GarbageError, Parcel
from sofa_fl.experiment.run.config import Config, parse_config

NUM_CLIENTS = 4


def tiny(**changes: object) -> Config:
    """A run of seconds, with sharing and a tree."""
    return parse_config(
        {
            "rounds": 2,
            "warmup": 3,
            "engine": "sequential",
            "data": {
                "num_clients": NUM_CLIENTS, "num_train": 400, "num_test": 120,
                "partition": "groups", "num_rotations": 2, "num_swaps": 1,
            },
            "model": {"name": "mlp", "hidden": 16},
            "local": {"batches": 3, "batch_size": 20},
            "sharing": {"ratio": 0.2},
            **changes,
        }
    )  # fmt: skip


@dataclass
class Node:
    """A node: its samples, its cap, what it remembers, and how it may fail."""

    data: NodeData
    number: int | None = None
    cap: float = 1.0
    memory: dict[str, bytes] = field(default_factory=dict)
    keeps: bool = False  # whether it is there from message to message
    _sites: dict[Setup, Site] = field(default_factory=dict)
    spoil: Callable[[Parcel, Parcel], Parcel | str | None] = lambda _asked, answer: answer

    def answer(self, asked: Parcel) -> Parcel | str | None:
        setup = Setup.read(asked.header["setup"])
        site = self._sites.get(setup) or Site(self.data, setup, self.cap, self.number)
        site.keeps = self.keeps
        if self.keeps:
            self._sites[setup] = site
        site.shelf = MemoryShelf(self.memory)
        try:
            return self.spoil(asked, site.answer(asked))
        except GarbageError as error:  # as Flower does it
            return f"ClientAppRaisedException: {error}"

    def forget(self) -> None:
        """Begin anew, as after a restart."""
        self._sites.clear()


@dataclass
class FakePost:
    """Carries parcels to nodes in this process; keeps a copy of all, as text and bytes."""

    at: dict[int, Node]
    log: list[tuple[int, str, Parcel, Parcel | str | None]] = field(default_factory=list)
    _answers: dict[str, Parcel | str | None] = field(default_factory=dict)

    def nodes(self) -> set[int]:
        return set(self.at)

    def send(self, parcels: Mapping[int, Parcel], kind: str, seconds: float) -> dict[int, str]:
        names = {}
        for node, parcel in parcels.items():
            parcel = Parcel(json.loads(json.dumps(dict(parcel.header))), dict(parcel.arrays))
            answer = self.at[node].answer(parcel) if node in self.at else None
            names[node] = f"letter {len(self.log)}"
            self.log.append((node, kind, parcel, answer))
            self._answers[names[node]] = answer
        return names

    def collect(self, letters: Iterable[str]) -> dict[str, Parcel | str]:
        found = {letter: self._answers[letter] for letter in letters}
        return {letter: answer for letter, answer in found.items() if answer is not None}


def nodes_of(config: Config) -> dict[int, Node]:
    """A node for every client; their names are not in the order of their numbers."""
    return {
        100 - i: Node(part_of(config.data, config.seed, i), i)
        for i in range(config.data.num_clients)
    }


def events(folder: Path) -> list[dict[str, Any]]:
    """What a run wrote of its rounds."""
    return _lines(folder / "events.jsonl")


def lines(folder: Path) -> list[dict[str, Any]]:
    """What a server wrote of its messages."""
    return _lines(folder / "exchanges.jsonl")


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
