"""How fast the engines train, as ratios in one run on one machine.

The job: one round of FedAvg's local training on MNIST, 20 clients, the paper's CNN, Adam 1e-3, 25
batches of 100 per client. Repetitions of all engines are interleaved, so that a busy machine
hurts all alike; medians are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.engine.base import Engine, LocalConfig, Task
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.workers import WorkersEngine
from sofa_fl.federation import Federation
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import network_factory

# Multiplications and additions of a forward pass per sample; a training step is three of them,
# but for the first layer, whose input needs no gradient.
FIRST_LAYER = 2 * 28 * 28 * 32 * 9
FORWARD = FIRST_LAYER + 2 * (12 * 12 * 64 * 32 * 9 + 2304 * 600 + 600 * 120 + 120 * 10)
FLOPS_PER_SAMPLE = 3 * FORWARD - FIRST_LAYER


def matmul_rate() -> float:
    """float32 operations per second of a large matrix product on all cores, the best of ten."""
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    seconds = [_timed(lambda: torch.mm(a, b)) for _ in range(10)]
    return float(2 * 2048**3 / min(seconds))


def has_bf16() -> bool:
    """Whether the processor multiplies in bfloat16; others only pretend to, slowly."""
    info = Path("/proc/cpuinfo")
    return info.exists() and any(flag in info.read_text() for flag in ("avx512_bf16", "amx_bf16"))


class PlainNetwork(nn.Sequential):
    """The same network as a tutorial writes it."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2304, 600),
            nn.ReLU(),
            nn.Linear(600, 120),
            nn.ReLU(),
            nn.Linear(120, 10),
        )


def plain_loop(tasks: list[Task], images: Tensor, labels: Tensor) -> None:
    """Client by client, batch by batch, as a tutorial writes it."""
    for task in tasks:
        network = PlainNetwork()
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4)
        x, y = images[task.samples], labels[task.samples]
        for _ in range(task.batches):
            rows = torch.randperm(len(y))[:100]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(x[rows]), y[rows])
            torch.autograd.backward(loss)
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    threads = torch.get_num_threads()
    data, local = federate(DataConfig(), seed=0), LocalConfig()
    factory = network_factory(ModelConfig(), (1, 28, 28), 10)
    engines: dict[str, Engine] = {
        "sequential": SequentialEngine(factory, data, local),
    }
    if torch.cuda.is_available():
        engines["stacked"] = StackedEngine(factory, data, local)
    else:
        engines["workers"] = WorkersEngine(factory, data, local)
        if has_bf16():  # by choice, and not what the others do: local.precision=bf16
            engines["workers, bf16"] = WorkersEngine(
                factory, data, replace(local, precision="bf16")
            )
    fed = Federation(data, engines["sequential"], local).at(1)
    start = fed.initial()
    tasks = [fed.task(client, start) for client in fed.clients]
    flops = sum(task.batches * local.batch_size for task in tasks) * FLOPS_PER_SAMPLE

    train = data.train
    images = torch.from_numpy(train.x).float() * train.scale + train.shift
    labels = torch.from_numpy(train.y)

    def plain() -> None:
        torch.set_num_threads(threads)
        plain_loop(tasks, images, labels)

    def with_engine(engine: Engine) -> Callable[[], object]:
        def train() -> None:
            torch.set_num_threads(1)
            engine.train(tasks)

        return train

    jobs = {"plain loop": plain} | {name: with_engine(e) for name, e in engines.items()}
    rate, seconds = matmul_rate(), {name: list[float]() for name in jobs}
    for _ in range(options.repeat):
        for name, job in jobs.items():
            seconds[name].append(_timed(job))
    for engine in engines.values():
        engine.close()

    median = {name: statistics.median(times) for name, times in seconds.items()}
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, ", end="")
    print(f"torch {torch.__version__}; matrix product {rate / 1e9:.0f} GFLOP/s\n")
    print("| engine | seconds a round | spread | times the plain loop | of the matrix product |")
    print("|---|---|---|---|---|")
    for name, times in seconds.items():
        speed, share = median["plain loop"] / median[name], flops / median[name] / rate
        spread = f"{min(times):.1f}-{max(times):.1f}"
        print(f"| {name} | {median[name]:.1f} | {spread} | {speed:.2f} | {share:.2f} |")
    if options.json:
        record = {"matmul_flops": rate, "flops_per_round": flops, "seconds": seconds}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


def _timed(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
