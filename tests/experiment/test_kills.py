"""Kills at any moment: what was done is never lost, and the end is the same to the bit."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from sofa_fl.api.runs import resume, run
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.checkpoint import Packed
from sofa_fl.experiment.storage.disk import temporary_for
from sofa_fl.experiment.storage.events import Event
from sofa_fl.experiment.storage.run_folder import RunFolder
from tests.experiment.cases import TINY, events_of, own_data, summary_of, tiny
from tests.experiment.faults import die_at

pytestmark = pytest.mark.slow

NUM_KILLS = 50
# All that a run can have to remember: data that change, clients that are missing, late, or bad.
LIVELY: dict[str, Any] = {
    "seed": 4,
    "rounds": 80,  # more than there can be before the last kill
    "warmup": 2,
    "participation": 0.7,
    "data": {
        **TINY["data"],
        "num_clients": 6,
        "num_rotations": 2,
        "num_swaps": 1,
        "scenario": {"name": "swap", "at": 8},
    },
    "local": {"batches": 2, "batch_size": 8},
    "faults": {"dropout": 0.2, "straggle": 0.2, "bad": 0.17, "kind": "nan"},
    "guard": {"patience": 2, "quarantine": 3},
}
MOMENTS = ("checkpoint", "flush", "event", "rename", "renamed")


def live(out: Path, values: dict[str, Any], news: Connection | None, fault: Any = None) -> None:
    """A run, or what is left of it; `news` gets how far it is."""
    if fault is not None:
        die_at(*fault)

    def observe(event: Event) -> None:
        if news is not None and event["event"] != "end":
            news.send((event["event"], event["round"]))

    if (out / "config.yaml").exists():
        resume(out, data=own_data(), observers=[observe])
    else:
        run(tiny(out, **values), data=own_data(), observers=[observe])


class Life:
    """A process that runs until it is killed; what it told is known afterwards."""

    def __init__(self, target: Callable[..., None], *args: Any, fault: Any = None) -> None:
        context = get_context("fork")
        self.news, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=target, args=(*args, theirs, fault))
        self.process.start()
        theirs.close()
        self.told: list[tuple[str, int | None]] = []

    def listen(self) -> bool:
        """Wait for the next word; False when there will be none."""
        try:
            self.told.append(self.news.recv())
        except EOFError:
            return False
        return True

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        while self.listen():
            pass
        self.process.join()
        self.news.close()
        assert self.process.exitcode in (0, -signal.SIGKILL)

    @property
    def began_after(self) -> int | None:
        """The round that it went on from; -1 is before the warm-up, None not even that."""
        begun = [-1 if round is None else round for kind, round in self.told if kind == "start"]
        return begun[0] if begun else None

    @property
    def done(self) -> int:
        """The last round that it said was done."""
        return max([round or 0 for kind, round in self.told if kind == "round"], default=-1)


def left_behind(out: Path) -> str:
    """What a kill came in the middle of, as far as the folder shows it."""
    folder = RunFolder(out)
    recorded = folder.events_file.read_bytes() if folder.events_file.exists() else b""
    if list(out.rglob("*.partial")):
        return "half a checkpoint"
    if recorded and not recorded.endswith(b"\n"):
        return "half an event"
    return "no event" if max(folder.saved_rounds(), default=-1) >= folder.num_recorded() else "none"


def state_of(run: Path) -> tuple[str, dict[str, bytes]]:
    """The last checkpoint, but for how long the run took."""
    folder = RunFolder(run)
    with safe_open(folder.checkpoint(folder.saved_rounds()[-1]), framework="np") as file:
        names = [name for name in file.keys() if name.startswith("state")]  # noqa: SIM118
        return file.metadata()["state"], {
            name: np.ascontiguousarray(file.get_tensor(name)).tobytes() for name in names
        }


def assert_the_same(cut: Path, whole: Path) -> None:
    assert events_of(cut) == events_of(whole)
    assert summary_of(cut) == summary_of(whole)
    assert state_of(cut) == state_of(whole)
    assert not list(cut.rglob("*.partial"))
    assert not list(cut.rglob(".tmp*"))


def test_fifty_kills_over_one_run(tmp_path: Path) -> None:
    """Half of them at a drawn time, or when a round is told; half at a drawn moment of writing."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    live(whole, LIVELY, None)
    seconds = json.loads((whole / "summary.json").read_text())["seconds"]
    draws, found = random.Random(5), Counter[str]()
    done = -1
    for number in range(NUM_KILLS):
        fault = None
        if number % 2:
            fault = (MOMENTS[number // 2 % len(MOMENTS)], draws.randint(1, 3), draws.random())
        life = Life(live, cut, LIVELY, fault=fault)
        if fault is None:
            if draws.random() < 0.9:  # else it dies while it gets ready
                life.listen()
            life.news.poll(draws.uniform(0, 1.5) * seconds / LIVELY["rounds"])
            life.process.kill()
        life.end()
        assert life.process.exitcode == -signal.SIGKILL, "killed, each of them"
        if life.began_after is not None:
            assert life.began_after >= done, "what was done is not done again"
        done = max(done, life.done, RunFolder(cut).num_recorded() - 1)
        found[left_behind(cut)] += 1
    assert done > 10, "kills are spread over the run"
    assert min(found[what] for what in ("half a checkpoint", "half an event", "no event")) >= 2
    assert found["none"] >= 10
    live(cut, LIVELY, None)
    assert_the_same(cut, whole)
    events = events_of(cut)
    for key in ("absent", "set_aside", "quarantined"):
        assert any(key in event for event in events), f"or this run shows nothing of {key}"


def children_of(pid: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except OSError:  # gone by now
            continue
        if int(after_name[1]) == pid and after_name[0] != "Z":
            found.add(int(stat.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_kills_leave_no_workers_behind(tmp_path: Path) -> None:
    """The first comes in the warm-up, the others some moments after a round has ended."""
    values = {**LIVELY, "engine": "workers", "rounds": 8, "data": TINY["data"]}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    live(whole, values, None)
    draws, orphans = random.Random(4), set[int]()
    for number in range(6):
        life = Life(live, cut, values)
        assert life.listen()
        if number:
            life.listen()
        time.sleep(draws.uniform(0, 0.05))
        workers = children_of(life.process.pid or 0)
        assert len(workers) >= min(2, len(os.sched_getaffinity(0)))
        life.kill()
        assert life.process.exitcode == -signal.SIGKILL
        orphans |= workers
    while any(is_running(pid) for pid in orphans):  # those at work end with what they are at
        time.sleep(0.01)
    live(cut, values, None)
    assert_the_same(cut, whole)


def slowly(out: Path, news: Connection, _: Any) -> None:
    """A disk that takes its time over the checkpoint of round 2."""
    plain = checkpoint.save

    def save(path: Path, packed: Packed) -> None:
        if path.stem == "round-00002":
            temporary_for(path).write_bytes(b"half of a")
            time.sleep(600)
        plain(path, packed)

    checkpoint.save = save
    live(out, {"rounds": 5}, news)


def has_half(folder: Path) -> bool:
    """Whether half of a checkpoint is there; other files are written and renamed meanwhile."""
    for half in RunFolder(folder).unfinished():
        with contextlib.suppress(FileNotFoundError):
            if half.stat().st_size == 9:
                return True
    return False


def test_killed_while_a_checkpoint_is_being_written(tmp_path: Path) -> None:
    """What is recorded or told is never ahead of what is saved."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    live(whole, {"rounds": 5}, None)
    life = Life(slowly, cut)
    while life.process.is_alive() and not has_half(cut):
        time.sleep(0.002)
    life.kill()
    assert life.process.exitcode == -signal.SIGKILL
    assert life.told == [("start", None), ("round", 0), ("round", 1)]
    assert RunFolder(cut).num_recorded() == 2
    assert RunFolder(cut).saved_rounds() == [0, 1]
    live(cut, {}, None)
    assert_the_same(cut, whole)
