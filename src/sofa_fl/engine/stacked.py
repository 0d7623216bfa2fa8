"""The GPU engine: all clients as one computation.

A step on one small network leaves a GPU idle; a step on two hundred at once does not. Tasks of
the same length are stacked, data stay on the device, and each client's draws are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sofa_fl.data.base import FederatedData, Samples
from sofa_fl.engine.base import Exam, LocalConfig, Outcome, Score, Task, batch_order
from sofa_fl.engine.learner import optimizer_for, pull_terms
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacking import StackedNetwork, why_not
from sofa_fl.errors import EngineError
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import as_vector
from sofa_fl.models.networks import NetworkFactory

EXAM_SAMPLES = 20_000  # forwarded at once, over all models: 4 GB of patches for the paper's CNN


class StackedEngine:
    """Stacks up to `width` clients at a time."""

    def __init__(
        self,
        factory: NetworkFactory,
        data: FederatedData,
        local: LocalConfig,
        device: str = "cuda",
        width: int = 256,
    ) -> None:
        self._single = SequentialEngine(factory, data, local, device)
        self._learner = self._single.learner
        self._width = width
        self._stacks: dict[int, StackedNetwork] = {}
        if reason := why_not(self._learner.network):
            raise EngineError(f"the network cannot be stacked: {reason}; use engine: sequential")
        if not self._learner.is_classifier:
            raise EngineError("regression cannot be stacked yet; use engine: sequential")

    @property
    def num_trainable(self) -> int:
        return self._single.num_trainable

    def initial(self, seed: int) -> Vector:
        return self._single.initial(seed)

    def train(self, tasks: Iterable[Task]) -> list[Outcome]:
        tasks = list(tasks)
        outcomes: dict[int, Outcome] = {}
        for batches in dict.fromkeys(task.batches for task in tasks):
            same = [i for i, task in enumerate(tasks) if task.batches == batches]
            for chunk in _chunks(same, self._width):
                together = self._train([tasks[i] for i in chunk], batches)
                outcomes |= dict(zip(chunk, together))
        return [outcomes[i] for i in range(len(tasks))]

    def _train(self, tasks: Sequence[Task], batches: int) -> list[Outcome]:
        local, device, num = self._learner.local, self._learner.device, len(tasks)
        stack = self._stack(num)
        stack.load([as_vector(task.start) for task in tasks])
        stack.network.train()
        orders = [batch_order(len(t.samples), batches, local.batch_size, t.seed) for t in tasks]
        rows = np.stack([task.samples[order] for task, order in zip(tasks, orders)], axis=1)
        steps = torch.from_numpy(rows).to(device).flatten(1)  # (batches, num · batch size)
        decay, constant = self._pulls(tasks, stack)
        optimizer = optimizer_for(stack.weights, local)
        losses = torch.empty(batches, num, device=device)
        for step, batch in enumerate(steps):
            torch.addcmul(constant, decay, stack.weights.data, out=stack.gradient)
            x, y = self._learner.stores["train"].batch(batch)
            each = functional.cross_entropy(stack.network(x), y, reduction="none")
            loss = each.view(num, -1).mean(dim=1)
            loss.sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses[step] = loss.detach()
        curves = losses.T.cpu().numpy()
        return [Outcome(vector, curve) for vector, curve in zip(stack.unload(num), curves)]

    def _pulls(self, tasks: Sequence[Task], stack: StackedNetwork) -> tuple[Tensor, Tensor]:
        """Every client's weight decay and constant (see `pull_terms`), as the weights lie."""
        like = self._learner.flat.trainable
        decays, constants = zip(*(pull_terms(task.pulls, like) for task in tasks))
        spread = stack.spread(torch.tensor(decays, device=self._learner.device))
        return spread, stack.block(constants)

    @torch.no_grad()
    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        """Exams of similar length together; short ones are filled up with rows not counted."""
        order = sorted(range(len(exams)), key=lambda i: (exams[i].split, len(exams[i].samples)))
        scores: dict[int, Score] = {}
        for split in ("train", "test"):
            same = [i for i in order if exams[i].split == split]
            for chunk in _chunks(same, self._width):
                scores |= dict(zip(chunk, self._evaluate([exams[i] for i in chunk])))
        return [scores[i] for i in range(len(exams))]

    def _evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        device, num = self._learner.device, len(exams)
        stack = self._stack(num)
        stack.load([as_vector(exam.params) for exam in exams])
        stack.network.eval()
        longest = max(len(exam.samples) for exam in exams)
        rows = np.full((num, longest), -1, dtype=np.int64)
        for row, exam in zip(rows, exams):
            row[: len(exam.samples)] = exam.samples
        on_device = torch.from_numpy(rows).to(device)
        sums = torch.zeros(2, num, device=device, dtype=torch.float64)
        for part in torch.split(on_device, max(1, EXAM_SAMPLES // num), dim=1):
            counts = part >= 0
            x, y = self._learner.stores[exams[0].split].batch(part.clamp_min(0).flatten())
            out = stack.network(x)
            loss = functional.cross_entropy(out, y, reduction="none").view(num, -1)
            right = (out.argmax(dim=1) == y).view(num, -1)
            sums += torch.stack([(loss * counts).sum(1), (right & counts).sum(1)])
        lengths = [len(exam.samples) for exam in exams]
        loss_sums, right_sums = sums.tolist()
        return [
            Score(a / n, b / n, n) if n else Score(float("nan"), float("nan"), 0)
            for a, b, n in zip(loss_sums, right_sums, lengths)
        ]

    def _stack(self, num: int) -> StackedNetwork:
        if num not in self._stacks:
            self._stacks = {num: StackedNetwork(self._learner.flat, num), **self._stacks}
        return self._stacks[num]

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        return self._single.embed(models, samples)

    def close(self) -> None:
        self._stacks = {}


def _chunks(items: Sequence[int], width: int) -> list[Sequence[int]]:
    """`items` in as few runs of at most `width` as can be, of nearly equal length."""
    num = -(-len(items) // width)
    return [items[len(items) * k // num : len(items) * (k + 1) // num] for k in range(num)]
