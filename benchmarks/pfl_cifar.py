"""pfl's benchmark of CIFAR-10 with this package and with pfl: client trainings a second, accuracy.

    python benchmarks/pfl_cifar.py --out pfl.json                      # all that are installed
    python benchmarks/pfl_cifar.py --data-dir data --rounds 1500 --only fedavg --out curve.json

1,000 users of 50 samples each, 50 of them a round, one epoch in batches of 10, SGD 0.1, a CNN of
1.6 million weights with Dropout, a test of 10,000 images every ten rounds, no checkpoints. Without
`--data-dir` (the folder of CIFAR-10's binary files) images are noise around a mean for each class.
Every contestant has a process of its own, one after the other; the first rounds are not counted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 (first: it finds the package)
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sofa_fl.data.cifar10 import find_cifar10, read_cifar10
from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData
from sofa_fl.experiment.run import launch
from sofa_fl.experiment.run.config import parse_config
from sofa_fl.experiment.run.loop import Own

CONTESTANTS = ("pfl", "fedavg", "sofa")
USERS, SAMPLES, COHORT, BATCH_SIZE, RATE = 1000, 50, 50, 10, 0.1
HELD_OUT = 5  # of the samples of a user: SOFA compares losses on them, and trains on the rest
EVERY = 10  # rounds from one test to the next
SKIPPED = 10  # rounds that are not counted: compiling, capturing, caches
Record = dict[str, Any]


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
    means = rng.integers(64, 192, (10, 3, 32, 32))

    def draw(num: int) -> Arrays:
        y = rng.integers(0, 10, num)
        x = np.empty((num, 3, 32, 32), dtype=np.uint8)
        for row, label in zip(x, y):
            row[:] = np.clip(means[label] + rng.integers(-64, 64, row.shape), 0, 255)
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


class Watch:
    """When rounds ended, and the accuracies that were measured."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.curve: list[tuple[int, float]] = []

    def done(self, at: float, accuracy: float | None) -> None:
        self.ends.append(at)
        if accuracy is not None:
            self.curve.append((len(self.ends), accuracy))

    def record(self, cohort: int, skipped: int) -> Record:
        """Trainings a second over all rounds that count, and the median round."""
        seconds = np.diff(self.ends).tolist()[skipped:]
        return {
            "trainings_per_second": cohort * len(seconds) / sum(seconds),
            "seconds_per_round": statistics.median(seconds),
            "rounds": len(self.ends),
            "curve": self.curve,
        }


def run_ours(method: str, options: argparse.Namespace, watch: Watch) -> None:
    """The job through the round loop that every run goes through."""

    def observe(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"]:
            is_new = event["evaluated"] == event["round"]
            watch.done(time.perf_counter(), event["client"]["mean"] if is_new else None)

    held_out = HELD_OUT if method == "sofa" else 0
    data = federated(images(options.data_dir, options.users), options.users, held_out)
    with tempfile.TemporaryDirectory() as folder:
        config = parse_config(
            {
                "method": method,
                "rounds": options.rounds,
                "warmup": 1,
                "participation": options.cohort / options.users,
                "out": f"{folder}/run",
                "engine": options.engine,
                "save_every": options.rounds,
                "score_levels": False,
                "evaluate": {"every": EVERY},
                "sharing": {"ratio": 0.0},
                "local": {
                    "batches": SAMPLES // BATCH_SIZE,
                    "batch_size": BATCH_SIZE,
                    "optimizer": "sgd",
                    "learning_rate": RATE,
                    "final_rate": 1.0,
                    "weight_decay": 0.0,
                    "prior": False,
                    "precision": options.precision,
                },
            }
        )
        with profiled(options.profile):
            launch.run(config, Own(data=data, network=network), [observe])


def run_pfl(options: argparse.Namespace, watch: Watch) -> None:
    sys.path.append(str(Path(__file__).with_name("peers")))
    from pfl_cifar_job import run_pfl

    train, test = images(options.data_dir, options.users)
    torch.manual_seed(0)

    def seen(part: Arrays) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        return part.x.astype(np.float32) * np.float32(part.scale) + np.float32(part.shift), part.y

    run_pfl(
        network(),
        seen(train),
        seen(test),
        shares(len(train), options.users, SAMPLES),
        rounds=options.rounds,
        cohort=options.cohort,
        batch_size=BATCH_SIZE,
        learning_rate=RATE,
        every=EVERY,
        on_round=watch.done,
        start=options.pfl_start,
        save=options.pfl_save,
    )


@contextmanager
def profiled(file: Path | None) -> Iterator[None]:
    """Write what Python spends its time on, for `pstats`, if a file is named."""
    if file is None:
        yield
        return
    import cProfile

    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    profile.dump_stats(file)


def run_one(name: str, options: argparse.Namespace) -> Record:
    watch, began = Watch(), time.perf_counter()
    if name == "pfl":
        run_pfl(options, watch)
    else:
        run_ours(name, options, watch)
    record = watch.record(options.cohort, min(SKIPPED, options.rounds // 2))
    record |= {"start_up": watch.ends[0] - began, "all": time.perf_counter() - began}
    if torch.cuda.is_available():
        record["gpu_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return record


def run_apart(name: str, folder: str) -> Record:
    """One contestant in a process of its own, with the same arguments."""
    file = Path(folder) / f"{name}.json"
    command = [sys.executable, __file__, *sys.argv[1:], "--only", name, "--out", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # pfl tells of every round
    record: Record = json.loads(file.read_text())["contestants"][name]
    return record


def table(found: dict[str, Record]) -> str:
    base = found.get("pfl", next(iter(found.values())))["trainings_per_second"]
    lines = ["| contestant | trainings a second | ratio | seconds a round | accuracy |", "|---" * 5]
    for name, record in found.items():
        rate, accuracy = record["trainings_per_second"], record["curve"][-1][1]
        lines.append(
            f"| {name} | {rate:.1f} | {rate / base:.2f} | {record['seconds_per_round']:.4f} | "
            f"{accuracy:.3f} |"
        )
    return "\n".join([lines[0], f"{lines[1]}|", *lines[2:]])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--cohort", type=int, default=COHORT)
    parser.add_argument("--engine", default="stacked" if torch.cuda.is_available() else "workers")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--pfl-start", type=Path, help="weights that pfl begins with")
    parser.add_argument("--pfl-save", type=Path, help="where pfl's weights go at the end")
    parser.add_argument("--profile", type=Path, help="Python's profile of one contestant of ours")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    options = parse()
    has_pfl = importlib.util.find_spec("pfl") is not None
    names = options.only or [name for name in CONTESTANTS if name != "pfl" or has_pfl]
    found: dict[str, Record] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            found[name] = run_one(name, options) if len(names) == 1 else run_apart(name, folder)
            keep(found, options)  # whatever becomes of the next
            rate = found[name]["trainings_per_second"]
            print(f"{name}: {rate:.1f} trainings a second", file=sys.stderr, flush=True)
    if len(names) > 1:
        print(table(found))
        if not has_pfl:
            print("\npfl is not installed, so ratios are over our FedAvg")


def keep(found: dict[str, Record], options: argparse.Namespace) -> None:
    """Write what there is so far, if it is asked for."""
    if options.out:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        settings = {k: v for k, v in vars(options).items() if isinstance(v, int | str)}
        record = {"device": device, "torch": torch.__version__, **settings, "contestants": found}
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
