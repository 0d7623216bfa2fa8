"""Where a round on a GPU goes: its wall time, what the GPU is busy with, what Python does.

    python benchmarks/gpu_round.py --out round.txt

Of pfl's job (see `pfl_cifar.py`) with SOFA-FL and FedAvg, and of the paper's experiment: some
rounds as they are, then one under torch's profiler, then one under Python's. Without a GPU it
does the same, and finds the GPU idle. What is known of a job is printed and written at once.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()  # before anything large is imported

import argparse
import cProfile
import faulthandler
import io
import pstats
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from cifar_job import COHORT, USERS, config_for, data_for, network
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity
from torch.profiler import profile as recorded

from sofa_fl.engine.base import LocalConfig, Precision
from sofa_fl.experiment.run import launch
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.loop import Own

JobName = Literal["sofa", "fedavg", "paper-bf16", "paper-tf32"]
Span = tuple[float, float]
WAITING = ("Synchronize", "cudaMemcpy", "cudaMalloc", "cudaFree", "Launch")
ROOT = Path(__file__).resolve().parents[1]
TOP = 16  # lines of every list


class Enough(BaseException):
    """Ends a run from an observer; no `Exception`, since those of observers end nothing."""


class Rounds:
    """An observer: lets rounds pass, times some, and profiles the two after them."""

    def __init__(self, passed: int, timed: int) -> None:
        self.passed, self.timed = passed, timed
        self.ends: list[float] = []
        self.gpu: recorded | None = None
        self.python = cProfile.Profile()
        self.profiled: list[float] = []
        self.began = 0.0

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] != "round":
            return
        synchronize()
        now = time.perf_counter()
        after = event["round"] - self.passed - self.timed
        if event["round"] >= self.passed and after <= 0:
            self.ends.append(now)
        if after == 0:
            self.gpu = profiler()
            self.gpu.start()
        elif after == 1:
            assert self.gpu is not None
            self.gpu.stop()
            self.profiled.append(now - self.began)
            self.python.enable()
        elif after == 2:
            self.python.disable()
            self.profiled.append(now - self.began)
            raise Enough
        self.began = time.perf_counter()

    @property
    def seconds(self) -> list[float]:
        return [b - a for a, b in zip(self.ends, self.ends[1:])]


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def profiler() -> recorded:
    """Of a GPU, kernels and what the host calls of CUDA; else of torch's operations."""
    has_gpu = torch.cuda.is_available()
    return recorded(activities=[ProfilerActivity.CUDA if has_gpu else ProfilerActivity.CPU])


def paper(name: JobName, folder: str) -> tuple[Config, Own]:
    """The paper's experiment, without checkpoints."""
    precision: Precision = "bf16" if name == "paper-bf16" else "tf32"
    return Config(local=LocalConfig(precision=precision), out=f"{folder}/run", save_every=0), Own()


def job_of(name: JobName, folder: str, options: argparse.Namespace) -> tuple[Config, Own]:
    if name.startswith("paper"):
        config, own = paper(name, folder)
        return replace(config, engine=options.engine), own
    config = config_for(
        name,
        folder,
        rounds=10_000,
        users=options.users,
        cohort=options.cohort,
        engine=options.engine,
        precision=options.precision,
        every=10_000,  # none: what a test takes is in `pfl_cifar.py`
    )
    return config, Own(data=data_for(name, None, options.users), network=network)


def report(name: str, rounds: Rounds) -> str:
    """What was found, in a few lines."""
    assert rounds.gpu is not None
    lines = [f"## {name}"]
    times = [1000 * seconds for seconds in rounds.seconds]
    lines.append(
        f"{statistics.median(times):.1f} ms a round ({min(times):.1f} to {max(times):.1f}, "
        f"{len(times)} rounds)"
    )
    gpu: Any = rounds.gpu  # torch gives its events no types
    events = list(gpu.events() or ())
    on_gpu = [event for event in events if event.device_type == DeviceType.CUDA]
    busy = covered((e.time_range.start, e.time_range.end) for e in on_gpu) / 1000
    lines.append(
        f"under torch's profiler: {1000 * rounds.profiled[0]:.1f} ms, the GPU busy for "
        f"{busy:.1f} ms of them, with {len(on_gpu)} kernels and copies"
    )
    lines += ["", "GPU: ms, calls, kernel", *totals(on_gpu)]
    host = [e for e in events if e.device_type == DeviceType.CPU]
    calls = [e for e in host if any(word in e.name for word in WAITING)] if on_gpu else host
    lines += ["", "host, in CUDA: ms, calls, function", *totals(calls)]
    lines += ["", f"host, in Python (under its profiler {1000 * rounds.profiled[1]:.1f} ms):"]
    for key, only in (("tottime", ()), ("cumtime", ("sofa_fl",))):
        text = io.StringIO()
        pstats.Stats(rounds.python, stream=text).sort_stats(key).print_stats(*only, 2 * TOP)
        rows = [line for line in text.getvalue().splitlines() if line.strip()]
        head = next((at for at, line in enumerate(rows) if "ncalls" in line), 0)
        lines += [shortened(line) for line in rows[head:]]
    return "\n".join([*lines, ""])


def shortened(line: str) -> str:
    """A line of `pstats` without the path of the checkout or of installed packages."""
    for root in (f"{ROOT}/src/", f"{ROOT}/"):
        line = line.replace(root, "")
    head, _, tail = line.partition("site-packages/")
    return f"{head[: len(head) - len(head.split()[-1])]}{tail}"[:130] if tail else line[:130]


def covered(spans: Iterable[Span]) -> float:
    """How long at least one of the spans lasts."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def totals(events: Sequence[Any]) -> list[str]:
    """The names that took longest, with their time and their number."""
    took: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for event in events:
        took[event.name] += (event.time_range.end - event.time_range.start) / 1000
        count[event.name] += 1
    lines = [f"{ms:8.2f} {count[name]:6d}  {name[:100]}" for name, ms in took.most_common(TOP)]
    return [*lines, f"{took.total():8.2f} {count.total():6d}  all"]


def look_at(name: JobName, options: argparse.Namespace) -> str:
    few = name.startswith("paper")  # it has 20 rounds
    rounds = Rounds(min(options.passed, 4) if few else options.passed, options.timed)
    with tempfile.TemporaryDirectory() as folder:
        config, own = job_of(name, folder, options)
        began = time.perf_counter()
        with suppress(Enough):
            launch.run(config, own, [rounds])
        took = time.perf_counter() - began
    return report(name, rounds) + f"(the run took {took:.1f} s)\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = get_args(JobName)
    parser.add_argument("--only", nargs="+", choices=names, default=names[:3])
    parser.add_argument("--seconds", type=float, default=3600.0, help="after which it is killed")
    parser.add_argument("--passed", type=int, default=10, help="rounds that are not looked at")
    parser.add_argument("--timed", type=int, default=8, help="rounds that are timed")
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--cohort", type=int, default=COHORT)
    parser.add_argument("--engine", default="stacked")
    parser.add_argument("--precision", default="float32", help="of pfl's job")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.seconds, exit=True)
    with profiler():  # the first takes seconds
        torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
    say = teller(options.out)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    say(f"{device}, torch {torch.__version__}, {options.precision}\n")
    for name in options.only:
        say(look_at(name, options))
        say(f"{time.perf_counter() - BEGAN:.1f} s since the beginning\n")
    faulthandler.cancel_dump_traceback_later()


def teller(out: Path | None) -> Callable[[str], None]:
    """Prints, and adds to a file if there is one."""
    if out is not None:
        out.write_text("")

    def say(text: str) -> None:
        print(text, flush=True)
        if out is not None:
            with out.open("a") as file:
                file.write(f"{text}\n")

    return say


if __name__ == "__main__":
    main()
