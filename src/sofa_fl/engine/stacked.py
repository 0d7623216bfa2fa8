"""The GPU engine: all clients as one computation.

A step on one small network leaves a GPU idle; a step on two hundred at once does not. Tasks of
the same length are stacked, data stay on the device, and each client's draws are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.data.base import FederatedData, Samples
from sofa_fl.engine.base import Exam, LocalConfig, Outcome, Score, Task, batch_order
from sofa_fl.engine.learner import each_cross_entropy, each_square, pull_terms
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stack import Pulls, Stack, Stepper
from sofa_fl.engine.stacking import why_not
from sofa_fl.errors import EngineError
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import as_vector
from sofa_fl.models.networks import NetworkFactory

EXAM_SAMPLES = 20_000  # forwarded at once, over all models: 4 GB of patches for the paper's CNN
KEPT = 2  # stacks kept for the next call, of training and of exams; each has its own memory

T = TypeVar("T")


class StackedEngine:
    """Stacks up to `width` clients at a time; fewer where memory does not last."""

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
        self._loss = each_cross_entropy if self._learner.is_classifier else each_square
        self._width = width
        self._steppers: dict[tuple[int, Pulls], Stepper] = {}
        self._stacks: dict[int, Stack] = {}
        if reason := why_not(self._learner.network) or self._differs():
            raise EngineError(f"the network cannot be stacked: {reason}; use engine: sequential")

    @property
    def num_trainable(self) -> int:
        return self._single.num_trainable

    def initial(self, seed: int) -> Vector:
        return self._single.initial(seed)

    def train(self, tasks: Sequence[Task]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        for batches in dict.fromkeys(task.batches for task in tasks):
            same = [i for i, task in enumerate(tasks) if task.batches == batches]
            outcomes |= self._in_chunks(same, lambda some: self._train([tasks[i] for i in some]))
        return [outcomes[i] for i in range(len(tasks))]

    def _train(self, tasks: Sequence[Task]) -> list[Outcome]:
        local, device, batches = self._learner.local, self._learner.device, tasks[0].batches
        orders = [batch_order(len(t.samples), batches, local.batch_size, t.seed) for t in tasks]
        rows = np.stack([task.samples[order] for task, order in zip(tasks, orders)], axis=1)
        steps = torch.from_numpy(rows).to(device).flatten(1)  # (batches, num · batch size)
        like, pulled = self._learner.flat.trainable, any(task.pulls for task in tasks)
        terms = [pull_terms(task.pulls, like) for task in tasks] if pulled else []
        stepper = self._stepper(len(tasks), Pulls.of(terms))
        stepper.begin([as_vector(task.start) for task in tasks], terms)
        losses = torch.stack([stepper(batch).clone() for batch in steps], dim=1).cpu().numpy()
        return [Outcome(vector, curve) for vector, curve in zip(stepper.stack.unload(), losses)]

    @torch.no_grad()
    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        """Exams of similar length together; short ones are filled up with rows not counted."""
        order = sorted(range(len(exams)), key=lambda i: (exams[i].split, len(exams[i].samples)))
        scores: dict[int, Score] = {}
        for split in ("train", "test"):
            same = [i for i in order if exams[i].split == split]
            scores |= self._in_chunks(same, lambda some: self._evaluate([exams[i] for i in some]))
        return [scores[i] for i in range(len(exams))]

    def _evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        learner, num = self._learner, len(exams)
        stack = self._stack(num)
        stack.load([as_vector(exam.params) for exam in exams])
        stack.network.eval()
        lengths = np.array([len(exam.samples) for exam in exams])
        rows = np.full((num, lengths.max()), -1, dtype=np.int64)
        for row, exam in zip(rows, exams):
            row[: len(exam.samples)] = exam.samples
        store, on_device = learner.stores[exams[0].split], torch.from_numpy(rows).to(learner.device)
        sums = torch.zeros(2, num, device=learner.device, dtype=torch.float64)
        for part in torch.split(on_device, max(1, EXAM_SAMPLES // num), dim=1):
            if not part.numel():  # nobody has samples
                break
            counts = part >= 0
            x, y = store.batch(part.clamp_min(0).flatten())
            out = stack.network(x)
            sums[0] += (self._loss(out, y).view(num, -1) * counts).sum(dim=1)
            if learner.is_classifier:
                sums[1] += ((out.argmax(dim=1) == y).view(num, -1) & counts).sum(dim=1)
        loss, right = sums.cpu().numpy()
        if not learner.is_classifier:
            variance = [learner.variance(exam) if len(exam.samples) else 1.0 for exam in exams]
            right = lengths - loss / np.array(variance)
        return [
            Score(float(a / n), float(b / n), n) if n else Score(float("nan"), float("nan"), 0)
            for a, b, n in zip(loss, right, lengths.tolist())
        ]

    def _in_chunks(self, asks: list[int], do: Callable[[list[int]], list[T]]) -> dict[int, T]:
        """`do` for as many as fit at a time; out of memory, half as many are tried."""
        done: dict[int, T] = {}
        while len(done) < len(asks):
            left = asks[len(done) :]
            num = -(-len(left) // self._width)
            some = left[: -(-len(left) // num)]
            try:
                done |= zip(some, do(some))
            except torch.cuda.OutOfMemoryError:
                if len(some) == 1:
                    raise EngineError("the GPU has no memory to train a single client") from None
                self.close()
                self._width = len(some) // 2
                torch.cuda.empty_cache()
        return done

    def _stepper(self, num: int, pulls: Pulls) -> Stepper:
        learner = self._learner

        def make() -> Stepper:
            stack, store = Stack(learner.flat, num), learner.stores["train"]
            return Stepper(stack, store, self._loss, learner.local, pulls)

        return _recall(self._steppers, (num, pulls), make)

    def _stack(self, num: int) -> Stack:
        return _recall(self._stacks, num, lambda: Stack(self._learner.flat, num))

    def _differs(self) -> str | None:
        """Try a stack of two: why it does not do what the network does, if so."""
        learner = self._learner
        x, _ = learner.stores["train"].batch(torch.arange(2, device=learner.device))
        twice = torch.cat([x, x])
        vectors = [learner.initial(seed) for seed in (0, 1)]
        for mode in (False, True):
            try:
                stack = Stack(learner.flat, 2)
                stack.load(vectors)
                stacked = stack.network.train(mode)(twice).view(2, 2, -1)
                again = stack.network(twice).view(2, 2, -1)
            except (RuntimeError, ValueError, TypeError, AttributeError) as error:
                return f"torch says '{str(error).splitlines()[0]}'"
            alone = []
            for vector in vectors:
                learner.flat.load(vector)
                alone.append(learner.network.train(mode)(x))
            if not torch.allclose(stacked, torch.stack(alone), rtol=1e-2, atol=1e-3):
                same = torch.allclose(stacked, again, rtol=1e-2, atol=1e-3)
                return "it mixes samples" if same else "it draws at random in training"
        return None

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        return self._single.embed(models, samples)

    def close(self) -> None:
        self._steppers, self._stacks = {}, {}


K = TypeVar("K")


def _recall(kept: dict[K, T], key: K, make: Callable[[], T]) -> T:
    """`kept[key]`, made if need be; of the others only those used last are kept."""
    value = kept.pop(key) if key in kept else None
    if value is None:
        while len(kept) >= KEPT:
            kept.pop(next(iter(kept)))
        value = make()
    kept[key] = value
    return value
