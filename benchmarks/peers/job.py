"""The job that every contestant does, and how it reports: NumPy only, so that all can import it."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCHES, BATCH_SIZE = 25, 100  # per client and round
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-4
TEST_BATCH = 250  # of the peers' evaluation


@dataclass(frozen=True, slots=True)
class Job:
    """Images as `(n, 1, 28, 28)` float32, labels, and the training rows of every client."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    rows: list[NDArray[np.int64]]


def load_job(path: Path) -> Job:
    """Read the file that `peers_prepare.py` writes, and scale the images."""
    with np.load(path) as file:
        scale, shift = float(file["scale"]), float(file["shift"])
        x, test_x = (
            file[name].astype(np.float32) * np.float32(scale) + np.float32(shift)
            for name in ("x", "test_x")
        )
        ends = np.cumsum(file["sizes"])[:-1]
        return Job(x, file["y"], test_x, file["test_y"], np.split(file["rows"], ends))


def shuffled_passes(num_samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Positions of a round's samples: one shuffled pass after the other, all batches full."""
    needed = BATCHES * BATCH_SIZE
    passes = -(-needed // num_samples)
    return np.concatenate([rng.permutation(num_samples) for _ in range(passes)])[:needed]


def arguments(*names: str) -> Any:
    """The job's file, the number of rounds, and whole numbers of the contestant's own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("rounds", type=int)
    for name in names:
        parser.add_argument(f"--{name}", type=int, default=1)
    return parser.parse_args()


class Clock:
    """Prints a line per round; a round lasts from the end of the one before, so nothing is lost."""

    def __init__(self) -> None:
        self.round = 0
        self.since = time.perf_counter()

    def done(self, accuracy: float | None) -> None:
        now = time.perf_counter()
        self.round += 1
        line = {"round": self.round, "seconds": now - self.since, "accuracy": accuracy}
        print(json.dumps(line), flush=True)
        self.since = now
