"""The engine for a cluster: tasks spread over the workers of Ray, on one machine or many.

Samples go to every machine once, models through Ray's object store. Tasks are drawn as workers
become free, and results are copied out and freed, so the store does not grow with the clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from sofa_fl.data.federated_data import FederatedData
from sofa_fl.engine.base import LocalConfig, Outcome, Task
from sofa_fl.engine.ray_cluster import Cluster
from sofa_fl.engine.ray_messages import RecentVectors, pack_requests, portions
from sofa_fl.engine.ray_worker import WorkerSetup, work
from sofa_fl.engine.sequential import SequentialEngine, SpreadEngine
from sofa_fl.engine.task_codec import Request
from sofa_fl.engine.workers import MAX_TRIES, num_cores
from sofa_fl.errors import EngineError, SofaError
from sofa_fl.models.flat import Vector, check_size
from sofa_fl.models.networks import NetworkFactory

QUEUE = 2  # messages per worker: while it works on one, the next is on its way
RECENT_BYTES = 64 << 20  # of models that stay in the object store for later tasks
WIDTH = 32  # requests in a message to a GPU; a fixed number, so that results do not vary
START_TIMEOUT = 60.0  # seconds within which the first worker must start


class RayEngine(SpreadEngine):
    """Tasks and exams spread over a Ray cluster; the same bits for any number of CPU workers."""

    def __init__(
        self,
        factory: NetworkFactory,
        data: FederatedData,
        local: LocalConfig,
        num_cpus: int | None = None,
        address: str | None = None,
        device: str = "cuda",
    ) -> None:
        """Join the cluster at `address` or `RAY_ADDRESS`, or start one with `num_cpus` here.

        A cluster with GPUs trains on them alone, many clients at once; any other on all its CPUs.
        """
        super().__init__(SequentialEngine(factory, data, local))
        model = self.engine.initial(0)
        self._size = len(model)
        self._num_recent = max(2, min(32, RECENT_BYTES // model.nbytes))
        num_cpus = num_cpus or num_cores()
        under_way = QUEUE * (WIDTH * torch.cuda.device_count() or num_cpus)
        store = _nbytes(data) * 11 // 10 + model.nbytes * (self._num_recent + 4 * under_way)
        self._cluster = Cluster(address, num_cpus, store)
        self._ray = self._cluster.ray
        try:
            stacked = self._cluster.num_gpus > 0
            self._width = WIDTH if stacked else 1
            setup = WorkerSetup.of(
                factory, data, local, device if stacked else "cpu", stacked=stacked
            )
            self._setup = self._ray.put(setup)
            self._work = self._ray.remote(
                num_cpus=0 if stacked else 1,
                num_gpus=1 if stacked else 0,
                max_retries=MAX_TRIES - 1,  # of a task whose worker was lost
                max_calls=0,  # keep workers, also those with a GPU
            )(work)
            self._start_workers()
        except BaseException:
            self.close()
            raise

    def train(self, tasks: Iterable[Task]) -> list[Outcome]:
        found = self._spread(tasks)
        return [Outcome(torch.from_numpy(params), losses) for params, losses in found]

    def close(self) -> None:
        """End the cluster if the engine started it; else free what the engine holds there."""
        self._setup = self._work = None
        self._cluster.leave()

    def _start_workers(self) -> None:
        """Set up the workers and wait for the first, so that errors show before the first round."""
        asked = [self._work.remote([self._setup], None) for _ in range(self._num_workers())]
        ready, _ = self._ray.wait(asked, timeout=START_TIMEOUT)
        if not ready:
            what = "GPU" if self._width > 1 else "CPU"
            raise EngineError(
                f"the engine needs a free {what} in the Ray cluster, but none was free within "
                f"{START_TIMEOUT:.0f} seconds; wait for other jobs there to end"
            )
        self._answers(ready[0])

    def _num_workers(self) -> int:
        """How many workers the cluster has room for now; machines may come and go."""
        cluster = self._cluster
        return max(1, cluster.num_gpus if self._width > 1 else cluster.num_cpus)

    def _spread(self, requests: Iterable[Request]) -> list[Any]:
        """All answers, in order; a request is drawn when there is room for it in the queue."""
        store: RecentVectors[Any] = RecentVectors(self._put, self._num_recent)
        coming = portions(requests, self._width)
        at_work: dict[Any, int] = {}  # which portion, by the reference to its answers
        answers: dict[int, list[Any]] = {}
        room, num_drawn = QUEUE * self._num_workers(), 0
        while True:
            while len(at_work) < room and (portion := next(coming, None)) is not None:
                message, vectors = pack_requests(portion, store)
                at_work[self._work.remote([self._setup], message, *vectors)] = num_drawn
                num_drawn += 1
                del portion, message, vectors  # Ray has them now, also for another try
            if not at_work:
                return [answer for number in range(num_drawn) for answer in answers[number]]
            (done,), _ = self._ray.wait(list(at_work))
            answers[at_work.pop(done)] = self._answers(done)
            del done

    def _put(self, vector: Vector) -> Any:
        check_size(vector, self._size)
        return self._ray.put(vector.detach().cpu().numpy())

    def _answers(self, reference: Any) -> list[Any]:
        """A worker's answers, copied out of the object store."""
        errors = self._ray.exceptions
        try:
            return [_copied(answer) for answer in self._ray.get(reference)]
        except errors.RayTaskError as error:
            if isinstance(error.cause, SofaError):
                raise error.cause from None
            where = str(error).partition("\n")[2]  # without Ray's own first line
            raise EngineError(f"a task failed in a Ray worker:\n{where}") from None
        except errors.RayError as error:
            raise EngineError(
                f"a Ray worker died {MAX_TRIES} times on the same task; check that its machine has "
                f"enough memory ({type(error).__name__})"
            ) from None


def _copied(answer: Any) -> Any:
    if isinstance(answer, tuple | list):
        return [_copied(part) for part in answer]
    return np.array(answer)


def _nbytes(data: FederatedData) -> int:
    return sum(part.x.nbytes + part.y.nbytes for part in (data.train, data.test))
