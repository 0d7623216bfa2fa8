"""Runs a command and watches it with all that it starts: lines, peak memory, an end for sure.

Linux only: memory is read from /proc, and orphans (Ray's daemons) are adopted to be found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
SAMPLE_EVERY = 0.4  # seconds
PR_SET_CHILD_SUBREAPER = 36


@dataclass(slots=True)
class Watched:
    """What came of a command: `lines` of its output with the seconds after its start."""

    lines: list[tuple[float, str]] = field(default_factory=list)
    errors: str = ""
    returncode: int | None = None  # None: it ran out of time and was stopped
    peak_bytes: int = 0
    seconds: float = 0.0
    others_cores: float = 0.0  # how many cores other processes kept busy meanwhile


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """All processes below `root`, by the parents that /proc names."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The command's name, in brackets, may hold anything: read from the last one on.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def proportional_bytes(pids: Sequence[int]) -> int:
    """Memory of these processes together; a page shared by two counts half in each (PSS)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it ended meanwhile
            for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def watch(command: Sequence[str], env: Mapping[str, str], limit: float) -> Watched:
    """Run `command` to its end or for `limit` seconds; nothing that it started is left behind."""
    result, stop = Watched(), time.monotonic() + limit
    before = frozenset(descendants(os.getpid()))
    busy, own = _busy_seconds(), _children_seconds()
    with tempfile.TemporaryFile("w+") as errors:
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        reader = threading.Thread(target=_read, args=(process, start, result.lines))
        reader.start()
        try:
            while process.poll() is None and time.monotonic() < stop:
                pids = [process.pid, *descendants(process.pid)]
                result.peak_bytes = max(result.peak_bytes, proportional_bytes(pids))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SAMPLE_EVERY)
            result.returncode = process.poll()
        finally:
            end_all(process, before)
            reader.join()
        result.seconds = time.monotonic() - start
        errors.seek(0)
        result.errors = errors.read()
    others = (_busy_seconds() - busy) - (_children_seconds() - own)
    result.others_cores = max(others, 0.0) / result.seconds
    return result


def end_all(process: subprocess.Popen[str], spare: frozenset[int]) -> None:
    """Kill a process, all below it and all orphans of it (adopted by this one), and wait."""
    below = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while left := {*below, *descendants(os.getpid())} - spare:
        below = []
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):  # another's child: adopted next time
                os.waitpid(pid, 0)


def _read(process: subprocess.Popen[str], start: float, lines: list[tuple[float, str]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append((time.monotonic() - start, line.rstrip("\n")))
    process.stdout.close()


def _busy_seconds() -> float:
    """CPU time that this machine has spent on anything, stolen time included."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
