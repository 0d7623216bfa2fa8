"""Rounds of many small clients: seconds by phase, and the most memory that was in use.

By default 1,000 clients of 60 samples, one epoch a round, the paper's CNN: 6 GB of personal models.
On a GPU machine: `python benchmarks/many_clients.py --clients 10000 --samples 6 --model mlp`.

`--clients 100000 --ask 100 --samples 4` asks 100 of them a round, in the warm-up too, scores as
many every round, shares nothing and has random samples of 20 numbers (`--model mlp` has 16 hidden
units then); `--save-every` rounds lie between checkpoints, by default 10.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from process_tree import descendants, proportional_bytes

from sofa_fl import sharing
from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData
from sofa_fl.engine import select
from sofa_fl.experiment.run import launch, loop, records
from sofa_fl.experiment.run.config import Config, parse_config
from sofa_fl.experiment.run.loop import Own
from sofa_fl.methods import clustered
from sofa_fl.methods.sofa import local as local_update
from sofa_fl.methods.sofa import method as sofa

PHASES = ("training", "evaluation", "clustering", "sharing", "records and checkpoint", "the rest")


class Clock:
    """Seconds by phase; a phase within another is taken out of that."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._within = ["the rest"]
        self._since = time.perf_counter()

    def tick(self) -> None:
        now = time.perf_counter()
        self.seconds[self._within[-1]] += now - self._since
        self._since = now

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            self._within.append(phase)
            try:
                return function(*args, **kwargs)
            finally:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                self.tick()
                self._within.pop()

        return run


@contextmanager
def timed_phases(clock: Clock) -> Iterator[None]:
    """Everything that belongs to a phase, wherever it is called from."""
    parts: dict[str, list[tuple[Any, str]]] = {
        "clustering": [(sofa.Sofa, step) for step in ("positions", "grow", "proposer", "edits")],
        "sharing": [(sofa, "share"), (local_update, "training_sets"), (clustered, "share"),
                    (clustered, "training_sets"), (loop, "traffic"), (records, "disclosed"),
                    (sharing, "foreign")],
        "records and checkpoint": [(loop.Experiment, "close_round")],
    }  # fmt: skip
    pick = select.pick_engine

    def pick_timed(*args: Any) -> Any:
        picked = pick(*args)
        engine = picked.engine
        for name, phase in (("train", "training"), ("evaluate", "evaluation"),
                            ("embed", "clustering")):  # fmt: skip
            setattr(engine, name, clock.timed(phase, getattr(engine, name)))
        return picked

    with ExitStack() as stack:
        stack.enter_context(patch.object(loop, "pick_engine", pick_timed))
        for phase, positions in parts.items():
            for place, name in positions:
                function = clock.timed(phase, getattr(place, name))
                stack.enter_context(patch.object(place, name, function))
        yield


class Memory:
    """The most memory in use, sampled: the share of this process and all below it (PSS)."""

    def __init__(self, every: float = 1.0) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(every,), daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self, every: float) -> None:
        while not self._stop.wait(every):
            here = os.getpid()
            self.peak = max(self.peak, proportional_bytes([here, *descendants(here)]))


class DoneError(BaseException):  # a common error of an observer does not stop a run
    """The last round is over; what a summary costs is not asked here."""


def random_clients(num: int, samples: int) -> FederatedData:
    """Clients of two kinds, with different targets for the same inputs."""
    rng = np.random.default_rng(0)
    rows = np.arange(num * samples).reshape(num, samples)
    x = rng.normal(size=(rows.size, 20)).astype(np.float32)
    odd = np.repeat(np.arange(num) % 2, samples)
    y = np.where(odd, x[:, :4].argmax(axis=1), x[:, :4].argmin(axis=1)).astype(np.int64)
    arrays = Arrays(x, y)
    held = samples // 4
    clients = tuple(ClientData(own[held:], own[:held], own[:held]) for own in rows)
    return FederatedData(arrays, arrays, clients, 4)


def measure(config: Config, own: Own) -> tuple[list[dict[str, float]], list[float], int]:
    """Seconds by phase, for the warm-up and every round, and the peak of memory in bytes.

    Between them the CPU seconds of this process, round by round.
    """
    clock, rounds, ends = Clock(), list[dict[str, float]](), list[float]()

    def observe(event: dict[str, Any]) -> None:
        clock.tick()
        if event["event"] == "round":
            rounds.append(dict(clock.seconds))
            ends.append(time.process_time())
            num_clusters = len(set(event["tree"].values()) - {None})
            print(f"round {event['round']}: {num_clusters} clusters, "
                  f"accuracy {event['client']['mean']:.3f}", flush=True)  # fmt: skip
        clock.seconds = dict.fromkeys(PHASES, 0.0)
        if event.get("round") == config.rounds:
            raise DoneError

    with timed_phases(clock), Memory() as memory, suppress(DoneError):
        launch.run(config, own, observers=[observe])
    return rounds, np.diff(ends).tolist(), memory.peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=60, help="training samples of a client")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--method", default="sofa")
    parser.add_argument("--position", default="weights")
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--save-every", type=int)
    parser.add_argument("--ask", type=int, help="clients a round; by default all")
    parser.add_argument("--data-dir", help="where another data set than MNIST is")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    part = options.ask / options.clients if options.ask else 1.0
    own = Own(random_clients(options.clients, options.samples)) if options.ask else Own()
    some: dict[str, Any] = (
        {
            "participation": part,
            "warmup_participation": part,
            "evaluate": {"clients": options.ask},
            "sharing": {"ratio": 0.0},
            "score_levels": False,
        }
        if options.ask
        else {}
    )
    with tempfile.TemporaryDirectory(dir=".") as folder:
        config = parse_config(
            {
                **some,
                "method": options.method,
                "rounds": options.rounds,
                "warmup": options.batches,
                "out": f"{folder}/run",
                "engine": options.engine,
                "save_every": options.save_every or (10 if options.ask else 1),
                "keep": 1,
                "data": {
                    "num_clients": options.clients,
                    "num_train": options.clients * options.samples,
                    "partition": "shards",
                    "min_samples": 1,
                    "dir": options.data_dir,
                },
                "model": {"name": options.model, **({"hidden": 16} if options.ask else {})},
                "local": {
                    "batches": options.batches,
                    "batch_size": options.samples,
                    **({"learning_rate": 0.02} if options.ask else {}),
                },
                "sofa": {"position": options.position},
            }
        )
        rounds, cpu_seconds, peak = measure(config, own)
    print(f"\n{options.clients} clients of {options.samples} samples, {options.model}, ", end="")
    print(f"{options.ask or 'all'} a round, {options.method}, ", end="")
    print(f"engine {options.engine}, position {options.position}, {os.cpu_count()} cores\n")
    print("| seconds |", " | ".join([*PHASES, "all"]), "|")
    print("|---" * (len(PHASES) + 2) + "|")
    for number, seconds in enumerate(rounds):
        row = [*seconds.values(), sum(seconds.values())]
        print(f"| {f'round {number}' if number else 'warm-up'} |", end=" ")
        print(" | ".join(f"{value:.{3 if options.ask else 1}f}" for value in row), "|")
    print(f"\npeak memory {peak / 2**30:.1f} GiB (PSS of the process and all that it started)")
    print(
        f"the median round {statistics.median(sum(r.values()) for r in rounds[1:]):.3f} s, ", end=""
    )
    print(f"{statistics.median(cpu_seconds):.3f} s of CPU time in this process")
    spent = os.times()
    cpu = spent.user + spent.system + spent.children_user + spent.children_system
    print(f"CPU seconds in all: {cpu:.0f} (with the imports; a busy machine makes the rest longer)")
    on_gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    if on_gpu:
        print(f"peak memory on the GPU {on_gpu / 2**30:.1f} GiB")
    if options.json:
        record = {
            **vars(options),
            "json": None,
            "seconds": rounds,
            "cpu_seconds": cpu_seconds,
            "peak": peak,
            "gpu": on_gpu,
            "cpu": cpu,
        }
        options.json.write_text(json.dumps({**record, "data_dir": None}, indent=2) + "\n")


if __name__ == "__main__":
    main()
