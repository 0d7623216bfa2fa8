"""A federation without Flower: machines in this process, whose answers can fail."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sofa_fl.errors import SofaError
from sofa_fl.experiment.run.config import Config, parse_config
from sofa_fl.models.config import ModelConfig
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import MachineData, example_data
from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.machine.site import Site
from sofa_fl_flower.masked_sum.masks import public_of, sum_key_of
from sofa_fl_flower.server.exchange import Answer
from sofa_fl_flower.server.expected import Expected
from sofa_fl_flower.transport.machine_profile import SampleFormat
from sofa_fl_flower.transport.run_setup import MakeNetwork, RunSetup
from sofa_fl_flower.transport.wire_message import WireMessage, refusal

NUM_CLIENTS = 4
MNIST = Expected(
    SampleFormat(("uint8", (1, 28, 28)), ("int64", ()), 1 / (255 * 0.3081), -0.1307 / 0.3081), 10
)
# Everything that a site may allow, on as few samples as a test has.
OPEN = Policy(
    state="",
    min_rows=1,
    own_batches=False,  # the server's, so that a run is the same as on one machine
    coarse_scores=False,  # likewise
    max_scores=None,
    max_disclosure=1.0,
    max_received=10.0,
    embeds=True,
    model=ModelConfig(name="mlp", hidden=16),
)
# What becomes of an answer, given what was asked; None: it does not arrive.
Spoil = Callable[[WireMessage, WireMessage], WireMessage | str | None]


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
class FakeMachine:
    """A machine: its samples, its policy, what it remembers, and how it may fail."""

    data: MachineData
    number: int | None = None
    policy: Policy = OPEN
    site: Site = field(default_factory=lambda: Site(secrets.token_bytes(32)))
    is_resident: bool = False  # whether one process answers all messages
    network: MakeNetwork | None = None
    _machines: dict[RunSetup, ClientMachine] = field(default_factory=dict)
    spoil: Spoil = lambda _asked, answer: answer

    def answer(self, asked: WireMessage) -> WireMessage | str | None:
        try:
            setup = RunSetup.from_dict(asked.header["setup"])
            machine = self._machines.get(setup)
            machine = machine or ClientMachine(
                self.data, setup, self.policy, self.site, self.number, self.network
            )
            machine.caches_models = self.is_resident
            if self.is_resident:
                self._machines[setup] = machine
            return self.spoil(asked, machine.answer(asked))
        except SofaError as error:  # as the ClientApp does it
            return refusal(str(error))

    def sums_key(self) -> str:
        """Its public key for sums."""
        return public_of(sum_key_of(self.site.key))

    def forget(self) -> None:
        """Forget all, as after a restart."""
        self._machines.clear()


@dataclass
class FakeMessenger:
    """Carries messages to machines in this process, and logs a copy of each."""

    at: dict[int, FakeMachine]
    log: list[tuple[int, str, WireMessage, WireMessage | str | None]] = field(default_factory=list)
    _answers: dict[str, WireMessage | str | None] = field(default_factory=dict)

    def machines(self) -> set[int]:
        return set(self.at)

    def send(
        self, messages: Mapping[int, WireMessage], kind: str, seconds: float
    ) -> dict[int, str]:
        ids = {}
        for machine, message in messages.items():
            sent = WireMessage(json.loads(json.dumps(dict(message.header))), dict(message.arrays))
            answer = self.at[machine].answer(sent) if machine in self.at else None
            ids[machine] = f"message {len(self.log)}"
            self.log.append((machine, kind, sent, answer))
            self._answers[ids[machine]] = answer
        return ids

    def collect(self, ids: Iterable[str]) -> dict[str, Answer]:
        answers = {id: self._answers[id] for id in ids}
        return {id: answer for id, answer in answers.items() if answer is not None}


def machines_of(config: Config) -> dict[int, FakeMachine]:
    """A machine for every client; their ids are not in the order of the clients."""
    policy = replace(OPEN, model=config.model)
    return {
        100 - i: FakeMachine(example_data(config.data, config.seed, i), i, policy)
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
