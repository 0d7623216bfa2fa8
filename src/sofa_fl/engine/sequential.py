"""The plain engine: one task after the other, on one device; and those that spread its work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import FederatedData, Samples, SplitName
from sofa_fl.engine.base import EngineAround, Exam, LocalConfig, Outcome, Score, Task
from sofa_fl.engine.exams import Sitting, Sums, gather, sittings
from sofa_fl.engine.learner import EVALUATION_BATCH, Learner, Store
from sofa_fl.engine.private import SeededNoise, train_privately
from sofa_fl.engine.task_codec import Embedding, Request
from sofa_fl.models.flat import Vector
from sofa_fl.models.networks import NetworkFactory

SITTING = 10 * EVALUATION_BATCH  # samples that a process scores at a time


class SequentialEngine:
    """Every task in the calling process; what the other engines are measured against."""

    def __init__(
        self, factory: NetworkFactory, data: FederatedData, local: LocalConfig, device: str = "cpu"
    ) -> None:
        stores: dict[SplitName, Store] = {
            "train": Store(data.train, device),
            "test": Store(data.test, device),
        }
        self.learner = Learner(factory, stores, local, device)

    @property
    def num_trainable(self) -> int:
        return self.learner.flat.num_trainable

    @property
    def num_head(self) -> int:
        return self.learner.flat.num_head

    def initial(self, seed: int) -> Vector:
        return self.learner.initial(seed)

    def train(self, tasks: Iterable[Task]) -> list[Outcome]:
        return [self._train(task) for task in tasks]

    def _train(self, task: Task) -> Outcome:
        if task.noising is None:
            return self.learner.train(task)
        return train_privately(self.learner, task, task.noising, SeededNoise(task.seed))

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        return [self.learner.evaluate(exam) for exam in exams]

    def sums(self, asked: Sequence[Sitting]) -> list[list[Sums]]:
        """Of every batch of every set: what engines that take exams apart put together again."""
        return [self.learner.sums(s.model, s.sets, s.split, s.priors, s.max_loss) for s in asked]

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        return np.stack([self.learner.embed(model, samples) for model in models])

    def close(self) -> None:
        """Nothing to let go of."""


class SpreadEngine(EngineAround[SequentialEngine], ABC):
    """The work of a sequential engine, done by several processes."""

    @abstractmethod
    def _spread(self, requests: Iterable[Request]) -> list[Any]:
        """The answers to all requests, in order."""

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        asked = sittings(exams, SITTING)
        sums = gather(len(exams), asked, self._spread(asked))
        return [self.engine.learner.score(exam, each) for exam, each in zip(exams, sums)]

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        return np.stack(self._spread(Embedding(model, samples) for model in models))
