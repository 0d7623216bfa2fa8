"""What a GPU does: training by engine, precision and number of clients; the whole experiment.

Prints Markdown; `--json` writes the numbers too, `--profile` what the kernels of one round take.
`--experiment bf16 tf32 ...` runs the whole experiment alone, once for every precision named, and
prints and writes each as it ends.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from engines import FLOPS_PER_SAMPLE

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.engine.base import Engine, LocalConfig, Precision, Pull, Task
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.launch import run
from sofa_fl.federation import Federation
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import network_factory

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bf16")
Row = dict[str, Any]


def matmul_rates() -> dict[str, float]:
    """Operations per second of a large matrix product, by precision."""
    rates: dict[str, float] = {}
    for precision in PRECISIONS:
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=kind) for _ in range(2))
        rates[precision] = 2 * 8192**3 / min(_timed(partial(torch.mm, a, b)) for _ in range(10))
    return rates


def tasks_of(fed: Federation, num: int) -> list[Task]:
    """A round of SOFA's local training: every client is pulled."""
    start = fed.initial()
    clients = [fed.clients[i % len(fed.clients)] for i in range(num)]
    return [fed.task(client, start, pulls=[Pull(start, 2e-3)]) for client in clients]


def training(repeat: int, counts: Sequence[int]) -> list[Row]:
    """Seconds for a round of the paper's local training (25 batches of 100 per client)."""
    data = federate(DataConfig(), seed=0)
    factory = network_factory(ModelConfig(), (1, 28, 28), 10)
    rows = []
    for precision in PRECISIONS:
        local = replace(LocalConfig(), precision=precision)
        engines: dict[str, Engine] = {
            "sequential": SequentialEngine(factory, data, local, "cuda"),
            "stacked": StackedEngine(factory, data, local),
        }
        for num in counts:
            for name, engine in engines.items():
                if name == "sequential" and num > 20:
                    continue  # as many times slower as there are more clients
                tasks = tasks_of(Federation(data, engine, local).at(1), num)
                engine.train(tasks)
                seconds = [_timed(partial(engine.train, tasks)) for _ in range(repeat)]
                flops = num * local.batches * local.batch_size * FLOPS_PER_SAMPLE
                rows.append(
                    {
                        "precision": precision,
                        "engine": name,
                        "clients": num,
                        "seconds": seconds,
                        "flops": flops / statistics.median(seconds),
                        "gpu_bytes": torch.cuda.max_memory_allocated(),
                    }
                )
        for engine in engines.values():
            engine.close()
    return rows


def experiment(precision: Precision, save_every: int = 1) -> Row:
    """The paper's experiment, all of it: seconds after the engine is ready, and accuracy."""
    seen: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        local = replace(LocalConfig(), precision=precision)
        config = Config(local=local, out=f"{folder}/run", save_every=save_every)
        started = time.perf_counter()
        result = run(
            config, observers=[lambda event: seen.append((event["event"], time.perf_counter()))]
        )
        torch.cuda.synchronize()
        ended = time.perf_counter()
    began = seen[0][1]
    rounds = [at for event, at in seen if event == "round"]  # saved, if they are
    client = result.summary["client"]
    return {
        "precision": precision,
        "save_every": save_every,
        "seconds": ended - began,
        "start_up": began - started,
        "warm_up": rounds[0] - began,
        "rounds": [b - a for a, b in pairwise(rounds)],
        "the_end": ended - rounds[-1],
        "mean": client["mean"],
        "min": client["min"],
        "root": result.summary["root"],
    }


def experiments(precisions: Sequence[Precision], save_every: int, file: Path | None) -> None:
    """The whole experiment, as often as precisions are named; each is told as it ends."""
    rows: list[Row] = []
    for precision in precisions:
        row = experiment(precision, save_every)
        rows.append(row)
        print(
            f"{precision}: {row['seconds']:.2f} s after {row['start_up']:.1f} s of start-up; "
            f"warm-up {row['warm_up']:.2f}, round {statistics.median(row['rounds']):.3f}, "
            f"end {row['the_end']:.2f}; client mean {100 * row['mean']:.2f}",
            flush=True,
        )
        if file:
            file.write_text(json.dumps({"experiment": rows}, indent=2) + "\n")


def profile(file: Path) -> None:
    """Which kernels a round of 200 clients spends its time in."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    data, local = federate(DataConfig(), seed=0), replace(LocalConfig(), precision="tf32")
    engine = StackedEngine(network_factory(ModelConfig(), (1, 28, 28), 10), data, local)
    tasks = tasks_of(Federation(data, engine, local).at(1), 200)
    engine.train(tasks)
    with recorded(activities=[ProfilerActivity.CUDA]) as record:
        engine.train(tasks)
        torch.cuda.synchronize()
    events = sorted(record.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}, tf32, 200 clients"]
    lines += [f"{total / 25e3:.2f} ms a step on the GPU; ms a step, calls a step, kernel:"]
    for event in events[:24]:
        took, calls = event.self_device_time_total / 25e3, event.count / 25
        lines.append(f"{took:7.3f} {calls:5.1f}  {event.key[:100]}")
    file.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--experiment", nargs="+", choices=PRECISIONS, default=())
    parser.add_argument("--save-every", type=int, default=1, help="of --experiment")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "there is no GPU here\n")
    if options.experiment:
        experiments(options.experiment, options.save_every, options.json)
        return
    rates = matmul_rates()
    rows = training(options.repeat, options.clients)
    whole = [experiment(precision) for precision in PRECISIONS]
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    print(f"{machine}; matrix product of 8192: ", end="")
    print(", ".join(f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in rates.items()), "\n")
    print("| precision | engine | clients | seconds a round | spread | TFLOP/s | over sequential |")
    print("|---|---|---|---|---|---|---|")
    alone = {r["precision"]: r["flops"] for r in rows if r["engine"] == "sequential"}
    for row in rows:
        times, speed = row["seconds"], row["flops"] / alone[row["precision"]]
        print(f"| {row['precision']} | {row['engine']} | {row['clients']} ", end="")
        print(f"| {statistics.median(times):.3f} | {min(times):.3f}-{max(times):.3f} ", end="")
        print(f"| {row['flops'] / 1e12:.1f} | {speed:.1f} |")
    print("\n| the whole experiment | seconds | start-up | client mean | worst | root |")
    print("|---|---|---|---|---|---|")
    for row in whole:
        scores = " | ".join(f"{100 * row[key]:.2f}" for key in ("mean", "min", "root"))
        print(f"| {row['precision']} | {row['seconds']:.2f} | {row['start_up']:.1f} | {scores} |")
    if options.json:
        record = {"machine": machine, "matmul": rates, "training": rows, "experiment": whole}
        options.json.write_text(json.dumps(record, indent=2) + "\n")
    if options.profile:
        profile(options.profile)


def _timed(job: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    job()
    torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
