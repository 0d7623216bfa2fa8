"""FedAvg on MNIST with this package and its peers: the same job, in one run, on one machine.

Every peer runs in an environment of its own, from exact versions. Repetitions are interleaved;
the first round of each is a warm-up. Only the standard library is used here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers_table import machine_line, table
from process_tree import Watched, adopt_orphans, watch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
JOBS, BENCH = HERE / "peers", ROOT / ".bench"
CORES = len(os.sched_getaffinity(0))
INSTALL_LIMIT, PREPARE_LIMIT = 1800, 300  # seconds


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way to do the job; `peer` names its environment, None is this package's own."""

    label: str
    script: str
    peer: str | None = None
    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ("torch",)


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(CORES))
FLWR, PFL = ("flwr", "ray", "torch"), ("pfl", "torch")
CONTESTANTS = {
    "plain": Contestant("plain PyTorch loop", "plain_job.py"),
    "flwr": Contestant(
        f"Flower, {CORES} clients at a time", "flwr_job.py", "flwr", distributions=FLWR
    ),
    "flwr-one": Contestant(
        "Flower, one client at a time",
        "flwr_job.py",
        "flwr",
        ("--cpus", str(CORES)),
        distributions=FLWR,
    ),
    "pfl": Contestant("pfl, one process", "pfl_job.py", "pfl", distributions=PFL),
    "pfl-many": Contestant(
        f"pfl, {CORES} processes", "pfl_job.py", "pfl", launcher=TORCHRUN, distributions=PFL
    ),
    "fedjax": Contestant("FedJAX", "fedjax_job.py", "fedjax", distributions=("fedjax", "jax")),
    "sofa-fl": Contestant("SOFA-FL, workers", "sofa_job.py", distributions=("sofa-fl", "torch")),
}


class UnavailableError(Exception):
    """A contestant cannot run here; the message is the sentence that the table shows."""


def python_of(peer: str | None) -> str:
    """The interpreter of a peer's environment, which is made if it is not there."""
    if peer is None:
        return sys.executable
    folder, requirements = BENCH / peer, JOBS / f"{peer}.txt"
    python, ready = folder / "bin" / "python", folder / ".ready"
    wanted = requirements.read_text()
    if not ready.exists() or ready.read_text() != wanted:
        _say(f"installing {peer} into {folder.relative_to(ROOT)}")
        _install([sys.executable, "-m", "venv", "--clear", str(folder)], peer)
        _install([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)], peer)
        ready.write_text(wanted)
    return str(python)


def _install(command: list[str], peer: str) -> None:
    done = watch(command, _environ(peer), INSTALL_LIMIT)
    if done.returncode != 0:
        raise UnavailableError(f"{peer} could not be installed here: {_last_error(done)}")


def version_of(contestant: Contestant, python: str) -> str:
    """The versions that count, as installed: `flwr 1.41.0, ray 2.55.1`."""
    code = "import sys; from importlib.metadata import version as v; " + (
        "print(', '.join(f'{n} {v(n)}' for n in sys.argv[1:]))"
    )
    command = [python, "-c", code, *contestant.distributions]
    done = subprocess.run(command, env=_environ(contestant.peer), capture_output=True, text=True)
    if done.returncode:
        raise UnavailableError(f"its version is not known: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()


def run_once(contestant: Contestant, data: Path, rounds: int, limit: float) -> dict[str, Any]:
    """One repetition: seconds and accuracy of every round, peak memory, when the first ended."""
    python = python_of(contestant.peer)
    script = [str(JOBS / contestant.script), str(data), str(rounds), *contestant.arguments]
    with tempfile.TemporaryDirectory() as scratch:
        env = _environ(contestant.peer) | {"RAY_TMPDIR": scratch}
        done = watch([python, *contestant.launcher, *script], env, limit)
    reports = [(at, json.loads(line)) for at, line in done.lines if line.startswith('{"round"')]
    if done.returncode is None:
        raise UnavailableError(
            f"stopped after {limit:.0f} s, in round {len(reports) + 1} of {rounds}"
        )
    if len(reports) != rounds:  # what goes wrong after the last one (torchrun's end) is no matter
        raise UnavailableError(
            f"ended after {len(reports)} of {rounds} rounds: {_last_error(done)}"
        )
    return {
        "seconds": [report["seconds"] for _, report in reports],
        "accuracy": [report["accuracy"] for _, report in reports],
        "first_round_at": reports[0][0],
        "peak_bytes": done.peak_bytes,
        "others_cores": done.others_cores,
    }


def prepare(data: Path) -> dict[str, Any]:
    """Write the job's file; what the machine can do now."""
    command = [sys.executable, str(HERE / "peers_prepare.py"), str(data)]
    done = watch(command, _environ(None), PREPARE_LIMIT)
    if done.returncode != 0:
        raise SystemExit(f"the job could not be prepared: {_last_error(done)}")
    answer: dict[str, Any] = json.loads(done.lines[-1][1])
    return answer


def machine(prepared: Mapping[str, Any]) -> dict[str, Any]:
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": CORES,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "torch": prepared["torch"],
        "matmul_flops": prepared["matmul_flops"],
    }


def compete(names: list[str], rounds: int, repeat: int, limit: float) -> dict[str, Any]:
    """All contestants, interleaved; who fails once is left out from then on."""
    entries: dict[str, dict[str, Any]] = {
        name: {"label": c.label, "peer": c.peer, "version": "", "error": None, "runs": []}
        for name, c in CONTESTANTS.items()
        if name in names
    }
    for name, entry in entries.items():  # before anything is measured
        try:
            contestant = CONTESTANTS[name]
            entry["version"] = version_of(contestant, python_of(contestant.peer))
        except UnavailableError as reason:
            entry["error"] = str(reason)
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "job.npz"
        record = {"rounds": rounds, "repeat": repeat, "contestants": entries}
        for repetition in range(repeat):
            prepared = prepare(data)
            best = max(prepared["matmul_flops"], record.get("machine", {}).get("matmul_flops", 0))
            record["machine"] = machine(prepared | {"matmul_flops": best})
            record["flops_per_round"] = prepared["flops_per_round"]
            _say(machine_line(record["machine"]))
            for name, entry in entries.items():
                if not entry["error"]:
                    _repeat(name, entry, data, rounds, limit, repetition)
    return record


def _repeat(
    name: str, entry: dict[str, Any], data: Path, rounds: int, limit: float, repetition: int
) -> None:
    try:
        run = run_once(CONTESTANTS[name], data, rounds, limit)
    except UnavailableError as reason:
        entry["error"] = str(reason)
        _say(f"{name}: {reason}")
        return
    entry["runs"].append(run)
    told = ", ".join(
        f"{seconds:.1f} s" + ("" if accuracy is None else f" {100 * accuracy:.1f}%")
        for seconds, accuracy in zip(run["seconds"], run["accuracy"])
    )
    _say(f"{name}, repetition {repetition + 1}: {told}")


def _environ(peer: str | None) -> dict[str, str]:
    """No GPU, no numbers of threads from outside; a peer sees no path of ours."""
    hidden = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS"}
    if peer is not None:
        hidden |= {"PYTHONPATH", "VIRTUAL_ENV"}
    ours = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    return {key: value for key, value in os.environ.items() if key not in hidden} | ours


def _last_error(done: Watched) -> str:
    lines = [line.strip() for line in done.errors.splitlines() if line.strip()]
    return lines[-1].replace("|", "/") if lines else f"exit code {done.returncode}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="the first is a warm-up")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--quick", action="store_true", help="one repetition of two rounds")
    parser.add_argument("--limit", type=float, default=1800, help="seconds per repetition")
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "peers.json")
    options = parser.parse_args()
    rounds, repeat = (2, 1) if options.quick else (options.rounds, options.repeat)
    if rounds < 2:
        parser.error(f"--rounds must be at least 2, for the first is a warm-up; got {rounds}")
    if not sys.platform.startswith("linux"):
        parser.error("memory is read from /proc, so this needs Linux")
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without ending what was started
    record = compete(options.only, rounds, repeat, options.limit)
    options.json.parent.mkdir(exist_ok=True)
    options.json.write_text(json.dumps(record, indent=2) + "\n")
    print(table(record))
    sys.exit(any(entry["error"] for entry in record["contestants"].values()))


if __name__ == "__main__":
    main()
