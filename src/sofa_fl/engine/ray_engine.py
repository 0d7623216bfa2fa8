"""The engine for a cluster: tasks spread over the workers of Ray, on this machine or on many.

Data go to every machine once, and models through its object store. Tasks are drawn as workers
become free, and what came of them is copied out and freed: the store does not grow with clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.data.base import FederatedData, Samples
from sofa_fl.engine.base import Exam, LocalConfig, Outcome, Score, Task
from sofa_fl.engine.exams import gather, sittings
from sofa_fl.engine.parcels import Ask, Embedding, Shelf, pack, portions
from sofa_fl.engine.ray_cluster import Cluster
from sofa_fl.engine.ray_worker import Setup, work
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.workers import MAX_TRIES, SITTING, num_cores
from sofa_fl.errors import EngineError, SofaError
from sofa_fl.models.flat import Vector, check_size
from sofa_fl.models.networks import NetworkFactory

QUEUE = 2  # asks under way per worker: while it is at one, the next is on its way to it
SHELF_BYTES = 64 << 20  # of models that stay in the object store for the tasks to come
WIDTH = 32  # asks that a GPU gets at once; always as many, so that results depend on no chance
PATIENCE = 60.0  # seconds until the first worker must be there


class RayEngine:
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
        """Join the cluster at `address` or `RAY_ADDRESS`, or start one of `num_cpus` here.

        Where it has GPUs they alone train, on `device`, many clients at once; else all its CPUs.
        """
        self._here = SequentialEngine(factory, data, local)
        model = self._here.initial(0)
        self._size = len(model)
        self._kept = max(2, min(32, SHELF_BYTES // model.nbytes))
        num_cpus = num_cpus or num_cores()
        under_way = QUEUE * (WIDTH * torch.cuda.device_count() or num_cpus)
        store = _nbytes(data) * 11 // 10 + model.nbytes * (self._kept + 4 * under_way)
        self._cluster = Cluster(address, num_cpus, store)
        self._ray = self._cluster.ray
        try:
            stacked = self._cluster.num_gpus > 0
            self._width = WIDTH if stacked else 1
            setup = Setup.of(factory, data, local, device if stacked else "cpu", stacked=stacked)
            self._setup = self._ray.put(setup)
            self._work = self._ray.remote(
                num_cpus=0 if stacked else 1,
                num_gpus=1 if stacked else 0,
                max_retries=MAX_TRIES - 1,  # of a task whose worker was lost
                max_calls=0,  # workers live on, those with a GPU too
            )(work)
            self._hello()
        except BaseException:
            self.close()
            raise

    @property
    def num_trainable(self) -> int:
        return self._here.num_trainable

    def initial(self, seed: int) -> Vector:
        return self._here.initial(seed)

    def train(self, tasks: Iterable[Task]) -> list[Outcome]:
        found = self._spread(tasks)
        return [Outcome(torch.from_numpy(params), losses) for params, losses in found]

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        asked = sittings(exams, SITTING)
        sums = gather(len(exams), asked, self._spread(asked))
        return [self._here.learner.score(exam, each) for exam, each in zip(exams, sums)]

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        return np.stack(self._spread(Embedding(model, samples) for model in models))

    def close(self) -> None:
        """End the cluster if it was started here; of another one, let go of what is ours."""
        self._setup = self._work = None
        self._cluster.leave()

    def _hello(self) -> None:
        """Set up the workers, and wait for the first: what is wrong shows here, not in a round."""
        asked = [self._work.remote([self._setup], []) for _ in range(self._slots())]
        ready, _ = self._ray.wait(asked, timeout=PATIENCE)
        if not ready:
            what = "GPU" if self._width > 1 else "CPU"
            raise EngineError(
                f"no {what} of the Ray cluster was free within {PATIENCE:.0f} seconds"
            )
        self._answers(ready[0])

    def _slots(self) -> int:
        """How many workers there may be; nodes may come and go."""
        cluster = self._cluster
        return max(1, cluster.num_gpus if self._width > 1 else cluster.num_cpus)

    def _spread(self, asks: Iterable[Ask]) -> list[Any]:
        """All answers, in the order asked; an ask is drawn when there is room for it to wait."""
        shelf: Shelf[Any] = Shelf(self._put, self._kept)
        coming = portions(asks, self._width)
        at_work: dict[Any, int] = {}  # which portion, by the reference to its answers
        answers: dict[int, list[Any]] = {}
        room, num_drawn = QUEUE * self._slots(), 0
        while True:
            while len(at_work) < room and (portion := next(coming, None)) is not None:
                parcels, vectors = pack(portion, shelf)
                at_work[self._work.remote([self._setup], parcels, *vectors)] = num_drawn
                num_drawn += 1
                del portion, parcels, vectors  # the store has them now, also for another try
            if not at_work:
                return [answer for number in range(num_drawn) for answer in answers[number]]
            (done,), _ = self._ray.wait(list(at_work))
            answers[at_work.pop(done)] = self._answers(done)
            del done

    def _put(self, vector: Vector) -> Any:
        check_size(vector, self._size)
        return self._ray.put(vector.detach().cpu().numpy())

    def _answers(self, reference: Any) -> list[Any]:
        """What a worker found, in memory of our own; the store's is free for what comes next."""
        errors = self._ray.exceptions
        try:
            return [_copied(answer) for answer in self._ray.get(reference)]
        except errors.RayTaskError as error:
            if isinstance(error.cause, SofaError):
                raise error.cause from None
            where = str(error).partition("\n")[2]  # the first line is Ray's own, in colours
            raise EngineError(f"a task failed in a Ray worker:\n{where}") from None
        except errors.RayError as error:
            raise EngineError(
                f"a Ray worker died {MAX_TRIES} times over the same task; is the machine out of "
                f"memory? ({type(error).__name__})"
            ) from None


def _copied(answer: Any) -> Any:
    if isinstance(answer, tuple | list):
        return [_copied(part) for part in answer]
    return np.array(answer)


def _nbytes(data: FederatedData) -> int:
    return sum(part.x.nbytes + part.y.nbytes for part in (data.train, data.test))
