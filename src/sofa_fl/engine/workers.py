"""The CPU engine: persistent worker processes, one thread each, with models in shared memory.

Two processes of one thread train faster than one process of two: see `benchmarks/README.md`.
Workers are forked, so they have data and network without a copy. A request goes through a pipe as
its header (`engine/task_codec.py`); the name of a model is a row of memory that both sides see.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np
import torch

from sofa_fl.data.federated_data import FederatedData
from sofa_fl.engine.base import LocalConfig, Outcome, Task
from sofa_fl.engine.learner import optimizer_for
from sofa_fl.engine.memory import keep_memory
from sofa_fl.engine.sequential import SequentialEngine, SpreadEngine
from sofa_fl.engine.task_codec import Request, decode, encode, run_requests
from sofa_fl.errors import EngineError, ModelError
from sofa_fl.models.flat import Mix, Model, check_size, empty_like, write
from sofa_fl.models.networks import NetworkFactory

MAX_TRIES = 3  # a task that kills its worker this often is at fault itself

OUT, FIRST_IN, NUM_ROWS = 0, 1, 3  # rows of shared memory: a result, a model, a pull's target


class _Job(NamedTuple):
    """A request at a worker: its position among all, and how often it has been tried."""

    number: int
    request: Request
    tries: int = 1


def can_fork() -> bool:
    return sys.platform == "linux" and hasattr(os, "fork")


def num_cores() -> int:
    return len(os.sched_getaffinity(0)) if can_fork() else os.cpu_count() or 1


class WorkersEngine(SpreadEngine):
    """Tasks and exams spread over worker processes; the same bits for any number of them."""

    def __init__(
        self,
        factory: NetworkFactory,
        data: FederatedData,
        local: LocalConfig,
        num_workers: int | None = None,
    ) -> None:
        if not can_fork():
            raise EngineError("worker processes need Linux; use engine: sequential")
        if torch.cuda.is_available():  # torch's optimizers ask CUDA, which no fork survives
            raise EngineError(
                "worker processes cannot be forked while CUDA is in use; use engine: stacked, or "
                "hide the GPU with CUDA_VISIBLE_DEVICES="
            )
        super().__init__(SequentialEngine(factory, data, local))
        self._size = len(self.engine.initial(0))
        self._workers: list[_Worker] = []
        _import_optimizer(local)
        keep_memory()
        for _ in range(num_workers or num_cores()):
            self._workers.append(self._start())

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def train(self, tasks: Iterable[Task]) -> list[Outcome]:
        return self._spread(tasks)

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def _start(self) -> _Worker:
        return _Worker(self.engine, self._size, [worker.pipe for worker in self._workers])

    def _spread(self, requests: Iterable[Request]) -> list[Any]:
        """Give each request to the next free worker; replace a worker that dies, and try again.

        A request is drawn when a worker is free for it, and released when it is done.
        """
        coming = (_Job(number, request) for number, request in enumerate(requests))
        again: deque[_Job] = deque()
        results: dict[int, Any] = {}
        at_work: dict[Connection, tuple[int, _Job]] = {}  # by pipe: which worker, at what
        try:
            while True:
                busy = {slot for slot, _ in at_work.values()}
                for slot, worker in enumerate(self._workers):
                    if slot in busy:
                        continue
                    if (job := again.popleft() if again else next(coming, None)) is not None:
                        at_work[worker.pipe] = (slot, job)
                        worker.send(job.request)
                if not at_work:
                    return [results[number] for number in range(len(results))]
                for pipe in wait(list(at_work)):
                    assert isinstance(pipe, Connection)
                    slot, job = at_work[pipe]
                    try:
                        results[job.number] = self._workers[slot].receive(job.request)
                    except (EOFError, OSError):
                        self._replace(slot)
                        if job.tries == MAX_TRIES:
                            raise EngineError(
                                f"a worker process died {MAX_TRIES} times on the same task; check "
                                "that the machine has enough memory"
                            ) from None
                        again.append(job._replace(tries=job.tries + 1))
                    del at_work[pipe], job
        except BaseException:
            for slot, _ in at_work.values():  # their answers must not reach the next call
                self._replace(slot)
            raise

    def _replace(self, slot: int) -> None:
        self._workers[slot].stop()
        self._workers[slot] = self._start()


class _Worker:
    """One process and the memory shared with it."""

    def __init__(self, engine: SequentialEngine, size: int, others: list[Connection]) -> None:
        context = get_context("fork")
        # Anonymous memory: unlike /dev/shm it has no small limit of its own in containers.
        self.memory = torch.frombuffer(mmap.mmap(-1, NUM_ROWS * size * 4), dtype=torch.float32)
        self.memory = self.memory.view(NUM_ROWS, size)
        self.pipe, theirs = context.Pipe()
        inherited = [*others, self.pipe]
        self.process = context.Process(
            target=_work, args=(engine, self.memory, theirs, inherited), daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of forking where there are threads. A worker uses none of what
            # they may have locked: it computes, on one thread, and talks through its pipe.
            warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
            self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    def send(self, request: Request) -> None:
        free = iter(range(FIRST_IN, NUM_ROWS))

        def name(model: Model) -> int:
            for vector in model.models if isinstance(model, Mix) else (model,):
                check_size(vector, self.memory.shape[1])
            row = next(free)
            write(model, self.memory[row])
            return row

        header = encode(request, name)
        # If the worker is dead, receiving its answer will say so.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send((type(request), header))

    def receive(self, request: Request) -> Any:
        status, answer = self.pipe.recv()
        if status == "refused":
            raise ModelError(answer)
        if status == "error":
            raise EngineError(f"a task failed in a worker process:\n{answer}")
        if isinstance(request, Task):
            return Outcome(empty_like(self.memory[OUT]).copy_(self.memory[OUT]), answer)
        return answer

    def stop(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _work(
    engine: SequentialEngine, memory: torch.Tensor, pipe: Connection, inherited: list[Connection]
) -> None:
    """Answer requests until the parent is gone."""
    for other in inherited:  # else no worker would notice that the parent is gone
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(1)
    while True:
        try:
            kind, header = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        try:
            (result,) = run_requests(engine, [decode(kind, header, memory.__getitem__)])
            if isinstance(result, Outcome):
                memory[OUT].copy_(result.params)
                result = np.array(result.losses)
            answer: tuple[str, object] = ("done", result)
        except ModelError as error:  # a sentence to act on
            answer = ("refused", str(error))
        except Exception:
            answer = ("error", traceback.format_exc())
        try:
            pipe.send(answer)
        except OSError:  # the parent is gone
            os._exit(0)


def _import_optimizer(local: LocalConfig) -> None:
    """Take one step, so that torch imports 800 modules once here and not in every worker."""
    weights = torch.nn.Parameter(torch.zeros(1))
    weights.grad = torch.zeros(1)
    optimizer_for([weights], local).step()
