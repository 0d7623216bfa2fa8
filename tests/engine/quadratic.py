"""A closed-form engine: methods are tested on it in milliseconds, without a network or data.

Samples are points; a model is a point; its loss on samples is the mean squared distance to
them. Training moves it towards the minimum of loss plus pulls by a fixed fraction per batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData, Samples
from sofa_fl.engine.base import Exam, Outcome, Score, Task
from sofa_fl.models.flat import Vector, as_vector
from sofa_fl.seeding import rng_for


@dataclass(frozen=True)
class QuadraticEngine:
    """An engine over `points`, one per sample; `rate` is the fraction moved per batch.

    That is twice the learning rate, since the gradient is twice the distance.

    The last `num_head` coordinates stand for a network's head.
    """

    points: NDArray[np.float32]
    rate: float = 0.1
    num_head: int = 2

    @property
    def num_trainable(self) -> int:
        return int(self.points.shape[1])

    def initial(self, seed: int) -> Vector:
        return torch.from_numpy(rng_for(seed, "initial").normal(size=self.num_trainable)).float()

    def train(self, tasks: Iterable[Task]) -> list[Outcome]:
        return [self._train(task) for task in tasks]

    def _train(self, task: Task) -> Outcome:
        pulled = sum((pull.weight * pull.target for pull in task.pulls), torch.zeros(()))
        centre = torch.from_numpy(self.points[task.samples].mean(axis=0))
        minimum = (centre + pulled) / (1 + sum(pull.weight for pull in task.pulls))
        steps = torch.arange(task.batches + 1)[:, None]
        start = as_vector(task.start)
        rate = self.rate if task.learning_rate is None else 2 * task.learning_rate
        way = minimum + (1 - rate) ** steps * (start - minimum)
        body = max(0, self.num_trainable - self.num_head)
        if task.part == "head":
            way[:, :body] = start[:body]
        elif task.part == "body":
            way[:, body:] = start[body:]
        losses = [self._loss(x, task.samples) for x in way[:-1]]
        return Outcome(way[-1].clone(), np.array(losses, dtype=np.float32))

    def _loss(self, x: Vector, samples: Samples) -> float:
        if not len(samples):
            return float("nan")
        return float(((self.points[samples] - x.numpy()) ** 2).sum(axis=1).mean())

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        losses = [self._loss(as_vector(exam.params), exam.samples) for exam in exams]
        return [Score(x, 1 / (1 + x), len(e.samples)) for x, e in zip(losses, exams)]

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        return np.stack([model.numpy() for model in models])

    def close(self) -> None:
        """Nothing to let go of."""


def quadratic_data(
    centres: NDArray[np.floating[Any]], num_samples: int = 20, noise: float = 0.1, seed: int = 0
) -> tuple[FederatedData, QuadraticEngine]:
    """Clients whose samples lie around `centres[i]`, and the engine that trains on them."""
    rng = rng_for(seed, "quadratic")
    n, d = centres.shape
    points = np.repeat(centres, num_samples, axis=0) + noise * rng.normal(size=(n * num_samples, d))
    rows = np.arange(n * num_samples).reshape(n, num_samples)
    held = max(1, num_samples // 10)
    arrays = Arrays(points.astype(np.float32), np.zeros(len(points), dtype=np.int64))
    clients = tuple(ClientData(train=r[held:], holdout=r[:held], test=r) for r in rows)
    return FederatedData(arrays, arrays, clients, 1), QuadraticEngine(points.astype(np.float32))
