"""Every network of the zoo trained stacked and one by one: is it the same, and how much faster?

Prints Markdown and writes `results/zoo.json`. Each network has a process of its own, so that one
that crashes is a row and not the end. Without a GPU the networks are tiny; the code is the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # of study and tests

import argparse
import json
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from tests.engine.zoo import TINY, USUAL, ZOO, distance, zoo_data, zoo_tasks

from sofa_fl.engine.base import LocalConfig, Outcome, Precision
from sofa_fl.engine.select import pick_engine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.trial import has_gpu

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bf16")
TOLERANCE = 1e-2  # of how far models have moved; ReLUs flip by rounding
ROUNDINGS = 3.0  # in lower precision, if more: of what it changes itself against float32
PATIENCE = 180.0  # seconds for a network
AUTO = "ResNet, BatchNorm"  # the network that `engine: auto` is asked about


@dataclass
class Row:
    """A network in one precision; what is missing was not reached before `error`."""

    network: str
    precision: str = ""
    way: str = ""
    sequential: float | None = None  # seconds for a round of all clients
    stacked: float | None = None
    difference: float | None = None  # of models, as a fraction of how far they have moved
    allowed: float | None = None
    worst_loss: float | None = None  # largest difference of a client's loss, relative
    is_captured: bool = False
    gigabytes: float = 0.0
    error: str = ""

    @property
    def speed(self) -> float | None:
        return self.sequential / self.stacked if self.sequential and self.stacked else None

    @property
    def is_same(self) -> bool:
        if self.difference is None or self.allowed is None:
            return False
        return self.difference <= self.allowed


def measure(
    name: str,
    precisions: Sequence[Precision],
    clients: int,
    batches: int,
    batch_size: int,
    *,
    gpu: bool,
) -> list[Row]:
    """Train a network in these precisions, float32 first, on both engines."""
    rows: list[Row] = []
    exact: list[Outcome] = []
    for precision in precisions:
        row = Row(name, precision)
        rows.append(row)
        try:
            local = LocalConfig(
                batches=batches, batch_size=batch_size, optimizer="sgd", learning_rate=0.01,
                precision=precision,
            )  # fmt: skip
            exact = _fill(row, clients, local, exact, gpu=gpu)
        except Exception as error:
            traceback.print_exc()
            row.error = " ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    return rows


def _fill(
    row: Row, clients: int, local: LocalConfig, exact: list[Outcome], *, gpu: bool
) -> list[Outcome]:
    """Measure one row; the sequential outcomes, which in float32 others are held against."""
    animal, size, device = ZOO[row.network], USUAL if gpu else TINY, "cuda" if gpu else "cpu"
    data = zoo_data(animal, size, clients, each=2 * local.batch_size)
    factory = animal.factory(size)
    plain = SequentialEngine(factory, data, local, device)
    tasks = zoo_tasks(plain, data, local.batches)
    expected = plain.train(tasks)
    row.sequential = _seconds(lambda: plain.train(tasks), repeat=1)
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    stacked = StackedEngine(factory, data, local, device)
    row.way = stacked.way
    found = stacked.train(tasks)
    row.stacked = _seconds(lambda: stacked.train(tasks), repeat=3)
    row.is_captured = any(stepper.graph is not None for stepper in stacked._steppers.values())
    row.gigabytes = torch.cuda.max_memory_allocated() / 1e9 if gpu else 0.0
    row.difference = distance(found, expected, tasks)
    row.worst_loss = max(
        float((abs(one.losses - same.losses) / abs(same.losses)).max())
        for one, same in zip(found, expected)
    )
    low = local.precision != "float32"
    if not low or exact:
        row.allowed = allowed(distance(expected, exact, tasks) if low else 0.0)
    return expected if not low else exact


def allowed(rounding: float) -> float:
    """By how much models may differ whose precision itself changes them by `rounding`."""
    return max(TOLERANCE, ROUNDINGS * rounding)


def judged_again(record: dict[str, Any]) -> dict[str, Any]:
    """A recorded run with its marks as the present limits have them."""
    rows = []
    for recorded in record["rows"]:
        row = Row(**{field.name: recorded[field.name] for field in fields(Row)})
        row.allowed = None if row.allowed is None else allowed(row.allowed / ROUNDINGS)
        rows.append(row)
    return {**record, "rows": plain(rows)}


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) | {"speed": row.speed, "same": row.is_same} for row in rows]


def _seconds(job: Callable[[], object], repeat: int) -> float:
    """The shortest of some times."""
    times = []
    for _ in range(repeat):
        _wait()
        start = time.perf_counter()
        job()
        _wait()
        times.append(time.perf_counter() - start)
    return min(times)


def _wait() -> None:
    if has_gpu():
        torch.cuda.synchronize()


def picked(*, gpu: bool) -> str:
    """What `engine: auto` says of a network."""
    size = USUAL if gpu else TINY
    data = zoo_data(ZOO[AUTO], size, 4, each=64)
    pick = pick_engine("auto", ZOO[AUTO].factory(size), data, LocalConfig(batch_size=32))
    pick.engine.close()
    return f"{pick.name} ({pick.why})"


def apart(*arguments: str) -> tuple[str, str]:
    """What this script prints last in a process of its own, and what went wrong, if so."""
    command = [sys.executable, __file__, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "", f"it did not end within {PATIENCE:g} s"
    sys.stderr.write(done.stderr)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        return "", f"its process ended with {done.returncode}: {why}"
    return last, ""


def table(rows: list[Row]) -> str:
    head = "| network | precision | stacked | over sequential | ms a round, one by one and stacked "
    lines = [head + "| models differ by | allowed | GB |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if row.error:
            lines.append(f"| {row.network} | {row.precision} | **failed**: {row.error} | | | | | |")
            continue
        how = row.way.removeprefix("clients are ") + ("" if row.is_captured else ", not captured")
        values = [row.network, row.precision, how, f"{row.speed:.1f}"]
        values += [f"{1e3 * (row.sequential or 0):.1f}, {1e3 * (row.stacked or 0):.1f}"]
        said = "" if row.is_same else " **not the same**"
        values += [f"{row.difference:.1e}{said}", f"{row.allowed or 0:.1e}", f"{row.gigabytes:.1f}"]
        lines.append(f"| {' | '.join(values)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=ROOT / "results/zoo.json")
    parser.add_argument("--only", nargs="+", choices=list(ZOO), default=list(ZOO))
    parser.add_argument("--clients", type=int)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["float32", "bf16"])
    parser.add_argument("--again", action="store_true", help="judge the recorded run again")
    parser.add_argument("--one", choices=list(ZOO), help=argparse.SUPPRESS)
    parser.add_argument("--auto", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.again:
        write(options.json, judged_again(json.loads(options.json.read_text())))
        return
    gpu = has_gpu()
    clients = options.clients or (20 if gpu else 3)
    if options.auto:
        print(picked(gpu=gpu))
        return
    if options.one:
        sizes = (5, 32) if gpu else (3, 6)
        rows = measure(options.one, options.precisions, clients, *sizes, gpu=gpu)
        print(json.dumps([asdict(row) for row in rows]))
        return
    began = time.perf_counter()
    found: list[Row] = []
    for name in options.only:
        said, wrong = apart(
            "--one", name, "--clients", str(clients), "--precisions", *options.precisions
        )
        found += [Row(**row) for row in json.loads(said)] if said else [Row(name, error=wrong)]
        print(f"{name}: {wrong or found[-1].speed}", file=sys.stderr)
    auto, wrong = apart("--auto")
    machine = apart_name() if gpu else "CPU, tiny networks"
    took = time.perf_counter() - began
    print(f"{machine}, torch {torch.__version__}, {clients} clients; {took:.0f} s in all.\n")
    print(table(found))
    print(f"\n`engine: auto`, {AUTO}: {wrong or auto}")
    record = {
        "machine": machine,
        "torch": torch.__version__,
        "clients": clients,
        "auto": wrong or auto,
        "rows": plain(found),
    }
    options.json.parent.mkdir(exist_ok=True)
    write(options.json, record)
    sys.exit(any(row.error or not row.is_same for row in found))


def write(file: Path, record: dict[str, Any]) -> None:
    file.write_text(json.dumps(record, indent=1) + "\n")


def apart_name() -> str:
    """The GPU's name, from another process: this one never touches CUDA."""
    code = "import torch; print(torch.cuda.get_device_name())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or "an unknown GPU"


if __name__ == "__main__":
    main()
