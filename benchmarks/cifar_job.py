"""The job of pfl's benchmark of CIFAR-10: its network, its users, and how ours is told to do it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sofa_fl.data.cifar10 import find_cifar10, read_cifar10
from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData
from sofa_fl.experiment.run.config import Config, parse_config

USERS, SAMPLES, COHORT, BATCH_SIZE, RATE = 1000, 50, 50, 10, 0.1
HELD_OUT = 5  # of the samples of a user: SOFA compares losses on them, and trains on the rest
EVERY = 10  # rounds from one test to the next


def network() -> nn.Module:
    """The CNN of pfl's benchmark, for images of 3 × 32 × 32: 1,626,442 weights."""
    layers = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * 14 * 14, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return layers


def images(data_dir: Path | None, users: int) -> tuple[Arrays, Arrays]:
    """CIFAR-10, or random images of its shape that a network can tell apart."""
    if data_dir is not None:
        return read_cifar10(find_cifar10([data_dir]))
    rng = np.random.default_rng(0)
    means = rng.integers(64, 192, (10, 3, 32, 32), dtype=np.int16)

    def draw(num: int) -> Arrays:
        y = rng.integers(0, 10, num)
        x = np.empty((num, 3, 32, 32), dtype=np.uint8)
        for rows in np.array_split(np.arange(num), -(-num // 2000)):
            noise = rng.integers(-64, 64, (len(rows), 3, 32, 32), dtype=np.int16)
            x[rows] = np.clip(means[y[rows]] + noise, 0, 255)
        return Arrays(x, y, scale=1 / 64, shift=-2.0)

    return draw(users * SAMPLES), draw(10 * users)


def shares(num: int, users: int, each: int | None = None) -> list[NDArray[np.int64]]:
    """Rows 0 to `num` at random among users, `each` of them or as many as there are."""
    rows = np.random.default_rng(1).permutation(num)
    return np.array_split(rows[: users * each if each else num], users)


def federated(data: tuple[Arrays, Arrays], users: int, held_out: int) -> FederatedData:
    train, test = data
    rows = zip(shares(len(train), users, SAMPLES), shares(len(test), users))
    clients = tuple(ClientData(own[held_out:], own[:held_out], test) for own, test in rows)
    return FederatedData(train, test, clients, 10)


def data_for(method: str, data_dir: Path | None, users: int) -> FederatedData:
    """The users' samples; SOFA-FL puts some of them aside."""
    return federated(images(data_dir, users), users, HELD_OUT if method == "sofa" else 0)


def config_for(
    method: str,
    folder: str,
    *,
    rounds: int,
    users: int = USERS,
    cohort: int = COHORT,
    engine: str = "stacked",
    precision: str = "float32",
    every: int = EVERY,
) -> Config:
    """The job as a run of ours; only its last round gets a checkpoint."""
    return parse_config(
        {
            "method": method,
            "rounds": rounds,
            "warmup": 1,
            "participation": cohort / users,
            "out": f"{folder}/run",
            "engine": engine,
            "save_every": 0,
            "score_levels": False,
            "evaluate": {"every": every},
            "sharing": {"ratio": 0.0},
            "local": {
                "batches": SAMPLES // BATCH_SIZE,
                "batch_size": BATCH_SIZE,
                "optimizer": "sgd",
                "learning_rate": RATE,
                "weight_decay": 0.0,
                "prior": False,
                "precision": precision,
            },
        }
    )
