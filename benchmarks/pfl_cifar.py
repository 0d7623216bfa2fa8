"""pfl's benchmark of CIFAR-10 with this package and with pfl: client trainings a second, accuracy.

    python benchmarks/pfl_cifar.py --out pfl.json                      # all that are installed
    python benchmarks/pfl_cifar.py --data-dir data --rounds 1500 --only fedavg --out curve.json

1,000 users of 50 samples each, 50 of them a round, one epoch in batches of 10, SGD 0.1, a CNN of
1.6 million weights with Dropout, a test of 10,000 images every ten rounds, no checkpoints. Without
`--data-dir` (the folder of CIFAR-10's binary files) images are noise around a mean for each class.
Every contestant has a process of its own, one after the other, and ends after `--seconds`; the
first rounds are not counted. What is measured is printed, and written, as soon as it is known.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()  # before anything large is imported

import argparse
import faulthandler
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cifar_job import (
    BATCH_SIZE,
    COHORT,
    EVERY,
    RATE,
    SAMPLES,
    USERS,
    config_for,
    data_for,
    images,
    network,
    shares,
)
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Arrays
from sofa_fl.experiment.run import launch
from sofa_fl.experiment.run.loop import Own

CONTESTANTS = ("pfl", "fedavg", "sofa")
SKIPPED = 10  # rounds that are not counted: compiling, capturing, caches
GRACE = 15.0  # seconds after which a contestant that did not end in time is killed
Record = dict[str, Any]


class Enough(BaseException):
    """Ends a run from an observer; no `Exception`, since those of observers end nothing."""


class Watch:
    """What a contestant does when: phases, rounds, and the accuracies that were measured."""

    def __init__(
        self, name: str, options: argparse.Namespace, keep: Callable[[Record], None]
    ) -> None:
        self.name, self.options, self.keep = name, options, keep
        self.phases: dict[str, float] = {}
        self.last = BEGAN
        self.ends: list[float] = []
        self.curve: list[tuple[int, float]] = []
        self.phase("imports")

    def phase(self, name: str) -> None:
        """Note that a phase has just ended."""
        now = time.perf_counter()
        self.phases[name] = now - self.last
        self.last = now
        self.say(f"{name} took {self.phases[name]:.2f} s")

    def say(self, what: str) -> None:
        age = time.perf_counter() - BEGAN
        print(f"{age:7.2f} s  {self.name}: {what}", file=sys.stderr, flush=True)

    def done(self, at: float, accuracy: float | None) -> bool:
        """Note that a round has ended; whether it is the last."""
        if not self.ends:
            self.phase("first round")
        self.ends.append(at)
        if accuracy is not None:
            self.curve.append((len(self.ends), accuracy))
        is_late = at - BEGAN > self.options.seconds
        is_last = len(self.ends) > 2 and (is_late or len(self.ends) >= self.options.rounds)
        if len(self.ends) > 2 and (is_last or len(self.ends) % self.options.every == 0):
            record = self.record()
            self.keep(record)
            self.say(f"round {len(self.ends)}, median {1000 * record['seconds_per_round']:.1f} ms")
        return is_last

    def record(self) -> Record:
        """Trainings a second over all rounds that count, the median round, and the phases."""
        skipped = min(SKIPPED, len(self.ends) // 2)
        seconds = np.diff(self.ends)
        tested = np.isin(np.arange(2, len(self.ends) + 1), [round for round, _ in self.curve])
        counts = np.arange(len(seconds)) >= skipped
        plain, tests = seconds[counts & ~tested].tolist(), seconds[counts & tested].tolist()
        median = statistics.median(plain or tests)
        phases = dict(self.phases)
        if plain and tests:
            phases["test"] = statistics.median(tests) - median
        record = {
            "trainings_per_second": self.options.cohort * counts.sum() / seconds[counts].sum(),
            "seconds_per_round": median,
            "rounds": len(self.ends),
            "phases": {**phases, "median round": median, "rounds": float(seconds.sum())},
            "all": time.perf_counter() - BEGAN,
            "curve": self.curve,
        }
        if torch.cuda.is_available():
            record["gpu_gib"] = torch.cuda.max_memory_allocated() / 2**30
        return record


def run_ours(method: str, options: argparse.Namespace, watch: Watch) -> None:
    """The job through the round loop that every run goes through."""

    def observe(event: dict[str, Any]) -> None:
        if event["event"] == "start":
            watch.phase("start-up")
        elif event["event"] == "round" and not event["round"]:
            watch.phase("warm-up")
        elif event["event"] == "round":
            is_new = event["evaluated"] == event["round"]
            if watch.done(time.perf_counter(), event["client"]["mean"] if is_new else None):
                raise Enough

    data = data_for(method, options.data_dir, options.users)
    watch.phase("data")
    with tempfile.TemporaryDirectory() as folder:
        config = config_for(
            method,
            folder,
            rounds=options.rounds + 1,  # the last is saved, and is not run
            users=options.users,
            cohort=options.cohort,
            engine=options.engine,
            precision=options.precision,
            every=options.every,
        )
        with profiled(options.profile), suppress(Enough):
            launch.run(config, Own(data=data, network=network), [observe])


def run_pfl(options: argparse.Namespace, watch: Watch) -> None:
    sys.path.append(str(Path(__file__).with_name("peers")))
    from pfl_cifar_job import run_pfl

    watch.phase("pfl's imports")
    train, test = images(options.data_dir, options.users)
    torch.manual_seed(0)

    def seen(part: Arrays) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        return part.x.astype(np.float32) * np.float32(part.scale) + np.float32(part.shift), part.y

    seen_train, seen_test = seen(train), seen(test)
    watch.phase("data")
    run_pfl(
        network(),
        seen_train,
        seen_test,
        shares(len(train), options.users, SAMPLES),
        rounds=options.rounds,
        cohort=options.cohort,
        batch_size=BATCH_SIZE,
        learning_rate=RATE,
        every=options.every,
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
    try:
        yield
    finally:
        profile.disable()
        profile.dump_stats(file)


def run_one(name: str, options: argparse.Namespace, keep: Callable[[Record], None]) -> None:
    """One contestant, here; if it does not end in time, print where it is and exit."""
    faulthandler.dump_traceback_later(options.seconds + GRACE, exit=True)
    try:
        watch = Watch(name, options, keep)
        if name == "pfl":
            run_pfl(options, watch)
        else:
            run_ours(name, options, watch)
    finally:
        faulthandler.cancel_dump_traceback_later()


def run_apart(name: str, folder: str, keep: Callable[[Record], None]) -> None:
    """One contestant in a process of its own, with the same arguments."""
    file = Path(folder) / f"{name}.json"
    command = [sys.executable, __file__, *sys.argv[1:], "--only", name, "--out", str(file)]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # pfl tells of rounds
    if file.exists():
        keep(json.loads(file.read_text())["contestants"][name])
    if done.returncode:
        print(f"{name} ended with exit code {done.returncode}", file=sys.stderr, flush=True)


def table(found: dict[str, Record]) -> str:
    base = found.get("pfl", next(iter(found.values())))["trainings_per_second"]
    lines = ["| contestant | trainings a second | ratio | seconds a round | accuracy |", "|---" * 5]
    for name, record in found.items():
        rate, curve = record["trainings_per_second"], record["curve"]
        lines.append(
            f"| {name} | {rate:.1f} | {rate / base:.2f} | {record['seconds_per_round']:.4f} | "
            f"{f'{curve[-1][1]:.3f}' if curve else '-'} |"
        )
    return "\n".join([lines[0], f"{lines[1]}|", *lines[2:]])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--every", type=int, default=EVERY, help="rounds from test to test")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of one contestant, in all")
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

    def keep(name: str, record: Record) -> None:
        """Write what there is so far, whatever becomes of the rest."""
        found[name] = record
        if options.out:
            write(found, options)

    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if len(names) == 1:
                run_one(name, options, partial(keep, name))
            else:
                run_apart(name, folder, partial(keep, name))
    if len(names) > 1 and found:
        print(table(found))
        if not has_pfl:
            print("\npfl is not installed, so ratios are over our FedAvg")


def write(found: dict[str, Record], options: argparse.Namespace) -> None:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    settings = {k: v for k, v in vars(options).items() if isinstance(v, int | float | str)}
    record = {"device": device, "torch": torch.__version__, **settings, "contestants": found}
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
