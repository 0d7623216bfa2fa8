"""Worker processes: none is missed when it dies, none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sofa_fl.engine.base import Exam, Outcome, Pull, SureEngine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.workers import WorkersEngine
from sofa_fl.errors import EngineError, ModelError
from tests.engine.cases import LOCAL, make_data, task

POISON = 255  # a pixel of client 0 alone
POISONED = make_data()
POISONED.train.x[:, 0, 0, 0] %= POISON
POISONED.train.x[POISONED.clients[0].train, 0, 0, 0] = POISON


class Trap(nn.Linear):
    """A network that does something odd when it is trained on client 0."""

    def __init__(self, spring: Callable[[], None]) -> None:
        super().__init__(64, 4)
        self.spring = spring

    def forward(self, input: Tensor) -> Tensor:
        poison = POISON * POISONED.train.scale + POISONED.train.shift
        if self.training and (input[:, 0, 0, 0] == poison).any():
            self.spring()
        return super().forward(input.flatten(1))


@contextmanager
def workers(spring: Callable[[], None], num_workers: int = 2) -> Iterator[WorkersEngine]:
    engine = WorkersEngine(lambda: Trap(spring), POISONED, LOCAL, num_workers)
    try:
        yield engine
    finally:
        engine.close()


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tasks(engine: SureEngine, clients: tuple[int, ...] = (0, 1, 2, 3)) -> list[Outcome]:
    start = engine.initial(0)
    return engine.train([task(start, c, seed=c) for c in clients])


def assert_bits(a: list[Outcome], b: list[Outcome]) -> None:
    for one, other in zip(a, b, strict=True):
        assert torch.equal(one.params, other.params)
        np.testing.assert_array_equal(one.losses, other.losses)


def expected(clients: tuple[int, ...] = (0, 1, 2, 3)) -> list[Outcome]:
    return tasks(harmless(), clients)


def harmless() -> SequentialEngine:
    return SequentialEngine(lambda: Trap(lambda: None), POISONED, LOCAL)


def is_running(pid: int) -> bool:
    """A process that nobody has waited for yet ("Z") has ended all the same."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(done: Callable[[], bool], what: str) -> None:
    for _ in range(6000):
        if done():
            return
        time.sleep(0.01)
    pytest.fail(f"waited a minute for {what}")


def test_same_bits_for_any_number_of_workers() -> None:
    for num_workers in (1, 2, 3):
        with workers(lambda: None, num_workers) as engine:
            assert len(engine.pids) == num_workers
            assert_bits(tasks(engine), expected())


def test_a_worker_killed_in_mid_task_is_replaced(tmp_path: Path) -> None:
    """It kills itself in its third batch, once."""
    marks = [tmp_path / str(n) for n in range(3)]

    def spring() -> None:
        mark = next((mark for mark in marks if not mark.exists()), None)
        if mark is not None:
            mark.touch()
            if mark is marks[-1]:
                kill_self()

    with workers(spring) as engine:
        before = engine.pids
        assert_bits(tasks(engine), expected())
        assert len(set(engine.pids) - set(before)) == 1
        assert all(mark.exists() for mark in marks)
        assert_bits(tasks(engine), expected())


def test_workers_killed_from_outside(tmp_path: Path) -> None:
    """Training waits for the kill, so that it comes in mid-task."""
    at_work = tmp_path / "at work"

    def spring() -> None:
        if not at_work.exists():
            at_work.write_text(str(os.getpid()))
            signal.pause()

    killer = (
        "import os, sys, time; p = sys.argv[1]\n"
        "while not (os.path.exists(p) and open(p).read()): time.sleep(0.01)\n"
        "os.kill(int(open(p).read()), 9)\n"
    )
    with (
        workers(spring) as engine,
        subprocess.Popen([sys.executable, "-c", killer, str(at_work)]) as process,
    ):
        assert_bits(tasks(engine), expected())
        assert process.wait() == 0
        assert int(at_work.read_text()) not in engine.pids


def test_idle_workers_killed_between_calls() -> None:
    with workers(lambda: None) as engine:
        killed = engine.pids
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: not is_running(pid), "a kill")  # type: ignore[misc]
        assert_bits(tasks(engine), expected())
        start = engine.initial(0)
        os.kill(engine.pids[0], signal.SIGKILL)
        exam = Exam(start, np.arange(9))
        assert engine.evaluate([exam]) == harmless().evaluate([exam])
        assert not set(killed) & set(engine.pids)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_task_that_keeps_killing_its_worker_is_an_error(num_workers: int) -> None:
    with workers(kill_self, num_workers) as engine:
        with pytest.raises(EngineError, match="a worker process died 3 times on the same task"):
            tasks(engine)
        assert_bits(tasks(engine, (1, 2, 3)), expected((1, 2, 3)))
        assert len(engine.pids) == num_workers
        assert all(is_running(pid) for pid in engine.pids)


def test_a_worker_that_exits_is_an_error_too() -> None:
    with workers(lambda: os._exit(0)) as engine, pytest.raises(EngineError, match="died 3 times"):
        tasks(engine)


def test_an_exception_in_a_worker_says_what_and_where() -> None:
    def spring() -> None:
        raise ZeroDivisionError("the trap went off")

    with workers(spring) as engine:
        said = r"ZeroDivisionError: the trap went off \(.*test_workers.py, line \d+\)$"
        with pytest.raises(ModelError, match=said):
            tasks(engine)
        # Answers that others were still working on must not turn up in later calls.
        for clients in ((1, 2), (3, 1), (2, 3)):
            assert_bits(tasks(engine, clients), expected(clients))


def test_an_error_that_is_not_the_networks_comes_with_its_traceback() -> None:
    def spring() -> None:
        raise EngineError("something of our own")

    said = r"(?s)a task failed in a worker.*in spring.*something of our own"
    with workers(spring) as engine, pytest.raises(EngineError, match=said):
        tasks(engine)


def test_any_number_of_pulls_gives_the_same_bits() -> None:
    with workers(lambda: None) as engine:
        start = engine.initial(0)
        pulls = tuple(Pull(engine.initial(i), 0.1 * i) for i in range(1, 7))
        asked = [replace(task(start, 1), pulls=pulls[:num]) for num in range(7)]
        assert_bits(engine.train(asked), harmless().train(asked))


def test_a_model_of_another_size_is_an_error_and_no_more() -> None:
    with workers(lambda: None) as engine:
        for size in (1, len(engine.initial(0)) + 1):
            wrong, right = torch.zeros(size), task(engine.initial(0), 1)
            for ask in (task(wrong), replace(right, pulls=(Pull(wrong, 0.1),))):
                with pytest.raises(ModelError, match=f"a vector of {size} numbers does not fit"):
                    engine.train([right, ask])
            with pytest.raises(ModelError, match=f"a vector of {size} numbers does not fit"):
                engine.evaluate([Exam(wrong, np.arange(3))])
        assert_bits(tasks(engine), expected())


def test_closing_ends_the_workers() -> None:
    with workers(lambda: None) as engine:
        pids = engine.pids
        assert all(is_running(pid) for pid in pids)
    assert not any(is_running(pid) for pid in pids)
    engine.close()  # once more does no harm


CHILD = """
import sys, time
from pathlib import Path
from torch import nn
from tests.engine.cases import DATA, LOCAL, task
from sofa_fl.engine.workers import WorkersEngine

class Slow(nn.Linear):
    def forward(self, input):
        if self.training:
            Path(sys.argv[2]).touch()
            time.sleep(0.5)
        return super().forward(input.flatten(1))

engine = WorkersEngine(lambda: Slow(64, 4), DATA, LOCAL, 2)
print(*engine.pids, flush=True)
if sys.argv[1] == "busy":
    engine.train([task(engine.initial(0), c, batches=2) for c in range(4)])
time.sleep(600)
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_workers_end_when_their_parent_is_killed(state: str, tmp_path: Path) -> None:
    errors, at_work = tmp_path / "stderr", tmp_path / "at work"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", CHILD, state, str(at_work)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=Path(__file__).parents[2],
        ) as parent,
    ):
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(is_running(pid) for pid in pids)
        if state == "busy":
            wait_until(at_work.exists, "a task to begin")
        parent.kill()
    wait_until(lambda: not any(is_running(pid) for pid in pids), "workers to end")
    assert errors.read_text() == ""
