"""Adapters of many clients trained stacked, one client after the other, and whole encoders.

    python benchmarks/adapters.py --data-dir FOLDER [--clients 100] [--precision tf32]

Each measurement has a process of its own, so that its memory is its own. Prints Markdown and writes
`results/adapters-gpu.json`; FOLDER is as `adapters_prepare.py` makes it. Without a GPU there is no
memory to tell, and few clients will do.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # of study and tests

import argparse
import json
import subprocess
import sys
import time
from typing import Any, get_args

import torch

from sofa_fl.engine.base import LocalConfig, Precision, Task
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import build
from sofa_fl.topology.tree import NodeId
from study.design.adapter_settings import Network
from study.intents import federation, find_base, network_of, read_queries

TIMES = 3
HEAD = ("what is trained", "clients", "how", "s a round", "peak GiB", "numbers", "frozen MB")
# What is trained, how many of the clients, and whether they are stacked.
CASES: tuple[tuple[Network, float, bool], ...] = (
    ("one A", 0.1, True),
    ("one A", 1.0, True),
    ("one A", 1.0, False),
    ("both factors", 1.0, True),
    ("head", 1.0, True),
    ("all", 1.0, True),
    ("all", 1.0, False),
)


def measure(kind: Network, num: int, *, stacked: bool, given: Any) -> dict[str, Any]:
    """Seconds for a round of all clients, the best of several, and the memory that it took."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base = find_base(given.data_dir)
    train, test = (read_queries(given.data_dir, base, split) for split in ("train", "test"))
    data = federation(train, test, seed=0)
    factory = network_of(base, kind, data.num_outputs)
    local = LocalConfig(
        batches=given.batches, batch_size=given.batch_size, precision=given.precision
    )
    make = StackedEngine if stacked else SequentialEngine
    engine = make(factory, data, local, device)
    start = engine.initial(0)
    tasks = [
        Task(
            site=NodeId(i), start=start, samples=data.clients[i % len(data.clients)].train,
            batches=local.batches, seed=i,
        )
        for i in range(num)
    ]  # fmt: skip
    took = []
    for _ in range(TIMES if stacked else 1):  # one after the other, nothing is captured first
        began = time.perf_counter()
        outcomes = engine.train(tasks)
        float(outcomes[-1].params[0])  # waits for the GPU
        took.append(time.perf_counter() - began)
    frozen = FlatNetwork(build(factory, 0)).frozen
    return {
        "network": kind,
        "clients": num,
        "how": engine.way if isinstance(engine, StackedEngine) else "one after the other",
        "seconds": min(took),
        "gib": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None,
        "numbers": len(start),
        "frozen_mb": sum(p.nbytes for p in frozen.values()) / 1e6,
        "loss": float(outcomes[-1].losses[-1]),
        "precision": given.precision,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--precision", choices=get_args(Precision), default="float32")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "adapters-gpu.json")
    parser.add_argument("--case", type=int, default=None, help="one of the measurements, as JSON")
    given = parser.parse_args()
    if given.case is not None:
        kind, part, stacked = CASES[given.case]
        num = max(1, round(part * given.clients))
        print(json.dumps(measure(kind, num, stacked=stacked, given=given)))
        return
    rows = []
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for case in range(len(CASES)):
        command = [sys.executable, __file__, *sys.argv[1:], "--case", str(case)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"| {CASES[case]} failed: {done.stderr.strip().splitlines()[-1]} |", flush=True)
            continue
        row = json.loads(done.stdout.strip().splitlines()[-1])
        rows.append(row)
        gib = "-" if row["gib"] is None else f"{row['gib']:.2f}"
        cells = (
            row["network"], str(row["clients"]), row["how"], f"{row['seconds']:.2f}", gib,
            f"{row['numbers']:,}", f"{row['frozen_mb']:.1f}",
        )  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)
        given.out.write_text(json.dumps({"measured": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
