"""What it costs in accuracy that sites draw their batches themselves (`own_batches`).

    python benchmarks/own_batches.py [--out results/own-batches.json]

Deployments in one process, by the code of server and sites, on small federations like S1 and S4: a
round is one pass over a site's samples. With `own_batches = false` the server's seed orders the
pass; with `true` every batch is drawn anew from all samples, so that a pass misses about a third
of them. Each seed is run both ways. A site draws from its machine's randomness; here it is seeded.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # of study and tests

import argparse
import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from sofa_fl.experiment.run.config import Config, parse_config
from sofa_fl.seeding import seed_for
from sofa_fl_flower.machine import own_batches
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import MachineData, example_data
from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.machine.site import Site
from sofa_fl_flower.server.exchange import Answer
from sofa_fl_flower.server.expected import Expected
from sofa_fl_flower.server.server import Server, ServerConfig
from sofa_fl_flower.transport.machine_profile import SampleFormat
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import WireMessage
from study.rows.estimates import paired

SEEDS = range(5)
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "S1-like": {"num_clients": 10, "partition": "dirichlet", "alpha": 1.0},
    "S4-like": {"num_clients": 12, "partition": "groups", "num_rotations": 2, "num_swaps": 2},
}
PER_CLIENT = 300  # training images
MNIST = Expected(
    SampleFormat(("uint8", (1, 28, 28)), ("int64", ()), 1 / (255 * 0.3081), -0.1307 / 0.3081), 10
)


def config_of(setting: str, seed: int) -> Config:
    """A small run: one pass over a client's samples in every round."""
    data = dict(SETTINGS[setting])
    number = data["num_clients"]
    return parse_config(
        {
            "seed": seed,
            "rounds": 15,
            "warmup": 15,
            "engine": "sequential",
            "data": {**data, "num_train": PER_CLIENT * number, "num_test": 2000},
            "model": {"name": "mlp", "hidden": 32},
            "local": {"batches": PER_CLIENT // 20, "batch_size": 20},
            "sharing": {"ratio": 0},
        }
    )


@dataclass
class Sites:
    """Carries messages to sites in this process."""

    data: list[MachineData]
    policy: Policy
    _machines: dict[int, ClientMachine] = field(default_factory=dict)
    _answers: dict[str, WireMessage] = field(default_factory=dict)

    def machines(self) -> set[int]:
        return set(range(len(self.data)))

    def send(
        self, messages: Mapping[int, WireMessage], kind: str, seconds: float
    ) -> dict[int, str]:
        ids = {}
        for number, message in messages.items():
            if number not in self._machines:
                site = Site(number.to_bytes(32))
                setup = RunSetup.from_dict(message.header["setup"])
                self._machines[number] = ClientMachine(
                    self.data[number], setup, self.policy, site, number, None
                )
            ids[number] = f"{kind} {number} {len(self._answers)}"
            self._answers[ids[number]] = self._machines[number].answer(message)
        return ids

    def collect(self, ids: Iterable[str]) -> dict[str, Answer]:
        return {id: self._answers[id] for id in ids}


def mean_client(setting: str, seed: int, *, own: bool) -> float:
    """The accuracy of the mean client at the end of a deployment."""
    config = config_of(setting, seed)
    rng = np.random.default_rng(seed_for(seed, 0, 0, "own batches"))
    seeded = SimpleNamespace(randbits=lambda _: int(rng.integers(1 << 62)))
    number = config.data.num_clients
    policy = Policy(
        state="",
        model=config.model,
        min_rows=1,
        own_batches=own,
        max_scores=None,
        coarse_scores=False,
    )
    sites = Sites([example_data(config.data, seed, i) for i in range(number)], policy)
    with tempfile.TemporaryDirectory() as folder, patch.object(own_batches, "secrets", seeded):
        server_config = ServerConfig(run=Path(folder) / "run", expected=MNIST, clients=number)
        result = Server(sites, config, server_config, lambda _line: None).run()
    return float(result.summary["client"]["mean"])


def measure(setting: str) -> dict[str, Any]:
    """Every seed both ways, and their difference in points with a 95% interval."""
    scores = {
        own: {seed: 100 * mean_client(setting, seed, own=own) for seed in SEEDS}
        for own in (True, False)
    }
    difference = paired(scores[True], scores[False])
    assert difference is not None
    found = {
        "own_batches": [round(scores[True][seed], 2) for seed in SEEDS],
        "server_batches": [round(scores[False][seed], 2) for seed in SEEDS],
        "difference": round(difference.estimate.mean, 2),
        "half_interval": round(difference.estimate.half, 2),
    }
    print(setting, json.dumps(found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "own-batches.json")
    out: Path = parser.parse_args().out
    found = {
        "what": "accuracy of the mean client in %, with batches of the site and of the server",
        "seeds": list(SEEDS),
        "settings": {setting: measure(setting) for setting in SETTINGS},
    }
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
