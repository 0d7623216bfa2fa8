"""The CPU engine: persistent worker processes, one thread each, with models in shared memory.

Two processes of one thread train faster than one process of two: see `benchmarks/README.md`.
Workers are forked, so data and network are theirs without a copy. A task goes to a worker as
row numbers and a few values; its models go through memory that both sides see.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.data.base import FederatedData, Samples
from sofa_fl.engine.base import Exam, LocalConfig, Outcome, Pull, Score, Task
from sofa_fl.engine.exams import Sitting, gather, sittings
from sofa_fl.engine.learner import EVALUATION_BATCH, optimizer_for
from sofa_fl.engine.memory import keep_memory
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.errors import EngineError
from sofa_fl.models.flat import Vector, check_size, empty_like
from sofa_fl.models.mix import Mix, Model, write
from sofa_fl.models.networks import NetworkFactory

MAX_PULLS = 4
SITTING = 10 * EVALUATION_BATCH  # samples that a worker scores at a time
MAX_TRIES = 3  # a task that kills its worker this often is at fault itself

Ask = (
    tuple[Literal["train"], Task]
    | tuple[Literal["evaluate"], Sitting]
    | tuple[Literal["embed"], tuple[Vector, Samples]]
)


class _Job(NamedTuple):
    """An ask on its way: which of all it is, and how often it has been tried."""

    number: int
    ask: Ask
    tries: int = 1


def can_fork() -> bool:
    return sys.platform == "linux" and hasattr(os, "fork")


def num_cores() -> int:
    return len(os.sched_getaffinity(0)) if can_fork() else os.cpu_count() or 1


class WorkersEngine:
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
                "worker processes cannot be forked where CUDA is in use; use engine: stacked, "
                "or hide the GPU with CUDA_VISIBLE_DEVICES="
            )
        self._here = SequentialEngine(factory, data, local)
        self._size = len(self._here.initial(0))
        self._workers: list[_Worker] = []
        _import_optimizer(local)
        keep_memory()
        for _ in range(num_workers or num_cores()):
            self._workers.append(self._start())

    @property
    def num_trainable(self) -> int:
        return self._here.num_trainable

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def initial(self, seed: int) -> Vector:
        return self._here.initial(seed)

    def train(self, tasks: Iterable[Task]) -> list[Outcome]:
        return self._spread(("train", task) for task in tasks)

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        asks = sittings(exams, SITTING)
        sums = gather(len(exams), asks, self._spread([("evaluate", ask) for ask in asks]))
        return [self._here.learner.score(exam, each) for exam, each in zip(exams, sums)]

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        return np.stack(self._spread(("embed", (model, samples)) for model in models))

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def _start(self) -> _Worker:
        return _Worker(self._here, self._size, [worker.pipe for worker in self._workers])

    def _spread(self, asks: Iterable[Ask]) -> list[Any]:
        """Every ask to the next free worker; a worker that dies is replaced, its ask repeated.

        An ask is drawn when a worker is free for it, and let go when it is done.
        """
        coming = (_Job(number, ask) for number, ask in enumerate(asks))
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
                        worker.send(job.ask)
                if not at_work:
                    return [results[number] for number in range(len(results))]
                for pipe in wait(list(at_work)):
                    assert isinstance(pipe, Connection)
                    slot, job = at_work[pipe]
                    try:
                        results[job.number] = self._workers[slot].receive(job.ask)
                    except (EOFError, OSError):
                        self._replace(slot)
                        if job.tries == MAX_TRIES:
                            raise EngineError(
                                f"a worker process died {MAX_TRIES} times over the same task; "
                                "is the machine out of memory?"
                            ) from None
                        again.append(job._replace(tries=job.tries + 1))
                    del at_work[pipe], job
        except BaseException:
            for slot, _ in at_work.values():  # what they are at must not answer the next call
                self._replace(slot)
            raise

    def _replace(self, slot: int) -> None:
        self._workers[slot].stop()
        self._workers[slot] = self._start()


class _Worker:
    """One process and the memory shared with it: row 0 a model in, row 1 out, then pulls."""

    def __init__(self, engine: SequentialEngine, size: int, others: list[Connection]) -> None:
        context = get_context("fork")
        rows = 2 + MAX_PULLS
        # Anonymous memory: unlike /dev/shm it has no small limit of its own in containers.
        self.memory = torch.frombuffer(mmap.mmap(-1, rows * size * 4), dtype=torch.float32)
        self.memory = self.memory.view(rows, size)
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

    def send(self, ask: Ask) -> None:
        what, job = ask
        try:
            if isinstance(job, Task):
                if len(job.pulls) > MAX_PULLS:
                    raise EngineError(f"a task may have {MAX_PULLS} pulls, got {len(job.pulls)}")
                self.put(0, job.start)
                for row, pull in enumerate(job.pulls, start=2):
                    self.put(row, pull.target)
                weights = [pull.weight for pull in job.pulls]
                rest = (job.batches, job.seed, weights, job.pace, job.prior)
                self.pipe.send((what, job.site, job.samples, *rest))
            elif isinstance(job, Sitting):
                self.put(0, job.model)
                self.pipe.send((what, job.sets, job.split, job.priors))
            else:
                self.put(0, job[0])
                self.pipe.send((what, job[1]))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the worker is dead: waiting for its answer will say so

    def put(self, row: int, model: Model) -> None:
        for vector in model.models if isinstance(model, Mix) else (model,):
            check_size(vector, self.memory.shape[1])
        write(model, self.memory[row])

    def receive(self, ask: Ask) -> Any:
        status, answer = self.pipe.recv()
        if status == "error":
            raise EngineError(f"a task failed in a worker process:\n{answer}")
        if ask[0] == "train":
            return Outcome(empty_like(self.memory[1]).copy_(self.memory[1]), answer)
        return answer

    def stop(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _work(
    engine: SequentialEngine, memory: torch.Tensor, pipe: Connection, inherited: list[Connection]
) -> None:
    """A worker's life: answer asks until the other side is gone."""
    for other in inherited:  # else no worker would notice that the parent is gone
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(1)
    while True:
        try:
            what, *ask = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        try:
            if what == "train":
                site, samples, batches, seed, weights, pace, prior = ask
                pulls = tuple(Pull(memory[row], w) for row, w in enumerate(weights, start=2))
                task = Task(
                    site=site,
                    start=memory[0],
                    samples=samples,
                    batches=batches,
                    seed=seed,
                    pulls=pulls,
                    pace=pace,
                    prior=prior,
                )
                (outcome,) = engine.train([task])
                memory[1].copy_(outcome.params)
                answer: tuple[str, object] = ("done", np.array(outcome.losses))
            elif what == "evaluate":
                answer = ("done", engine.learner.sums(memory[0], *ask))
            else:
                answer = ("done", engine.learner.embed(memory[0], *ask))
        except Exception:
            answer = ("error", traceback.format_exc())
        try:
            pipe.send(answer)
        except OSError:  # nobody is left to hear it
            os._exit(0)


def _import_optimizer(local: LocalConfig) -> None:
    """Take a step on nothing: torch then imports 800 modules, once here, not in every worker."""
    weights = torch.nn.Parameter(torch.zeros(1))
    weights.grad = torch.zeros(1)
    optimizer_for([weights], local).step()
