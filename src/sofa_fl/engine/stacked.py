"""The GPU engine: all clients as one computation.

A step on one small network leaves a GPU idle; a step on two hundred at once does not. Tasks of
the same length are stacked, data stay on the device, and each client's draws are its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from sofa_fl.data.federated_data import FederatedData
from sofa_fl.engine.base import (
    EngineAround,
    Exam,
    LocalConfig,
    Outcome,
    Prior,
    Score,
    Task,
    TrainedPart,
    batch_order,
)
from sofa_fl.engine.exams import Sitting, Sums, alike, gather, sittings, summed
from sofa_fl.engine.learner import cut, each_cross_entropy, each_square, pull_decay
from sofa_fl.engine.map_clients import UndecidedError
from sofa_fl.engine.precision import multiplying_in_tf32
from sofa_fl.engine.private_stack import train_stack_privately
from sofa_fl.engine.reasons import reason_of
from sofa_fl.engine.recall import recall, round_up
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stack import Stack
from sofa_fl.engine.stepper import Pulls, Stepper
from sofa_fl.engine.ways import choose_way
from sofa_fl.errors import EngineError, release
from sofa_fl.models.flat import on_device
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.models.rows import rows_of, sums_of

EXAM_SAMPLES = 20_000  # forwarded at once, over all models: 4 GB of patches for the paper's CNN
FEWEST = 64  # of these, if memory does not last
SITTING = 512  # samples of one model in one row of a stack
WORTH = 1024  # samples: what it takes a GPU as long to forward as it takes to start another stack
RECORDED = "a step is not recorded as a CUDA graph"
KEPT = 2  # steppers kept for the next call; each has its own memory
KEPT_ROWS = 1024  # models that all stacks for exams hold together: few large ones, all small ones

T = TypeVar("T")
logger = logging.getLogger("sofa_fl")


class StackedEngine(EngineAround[SequentialEngine]):
    """Stacks up to `width` clients at a time; fewer where memory does not last.

    A network of layers that have a stacked form runs on those; any other that torch can map is
    mapped over the clients; the rest are trained one by one, and so are those that fail in a
    stack later on. `way` says which it is.
    """

    def __init__(
        self,
        factory: NetworkFactory,
        data: FederatedData,
        local: LocalConfig,
        device: str = "cuda",
        width: int = 256,
    ) -> None:
        super().__init__(SequentialEngine(factory, data, local, device))
        self._learner = self.engine.learner
        self._loss = each_cross_entropy if self._learner.is_classifier else each_square
        self._width, self._samples = width, EXAM_SAMPLES
        self._num_clients = len(data.clients)
        self._scores_in_tf32 = local.precision == "bf16" and self._learner.device.type == "cuda"
        self._steppers: dict[tuple[int, Pulls, TrainedPart], Stepper] = {}
        self._stacks: dict[int, Stack] = {}
        self._make, self._exams_alone, self.way = choose_way(self._learner)

    def train(self, tasks: Iterable[Task]) -> list[Outcome]:
        if self._make is None:
            return self.engine.train(tasks)
        tasks = list(tasks)
        # Around a part of the clients the tree changes from round to round, and with it the decay.
        vary = 2 * len(tasks) < self._num_clients
        outcomes: dict[int, Outcome] = {}
        kinds = [(t.batches, t.learning_rate, t.part, t.noising is None) for t in tasks]
        for kind in dict.fromkeys(kinds):
            same = [i for i, other in enumerate(kinds) if other == kind]
            outcomes |= self._in_chunks(
                same, lambda some: self._train_some([tasks[i] for i in some], vary)
            )
        return [outcomes[i] for i in range(len(tasks))]

    def _train_some(self, tasks: Sequence[Task], vary: bool) -> list[Outcome]:
        if self._make is None:
            return self.engine.train(tasks)
        trouble = ""
        try:
            return self._train(tasks, vary)
        except torch.cuda.OutOfMemoryError:
            raise
        except UndecidedError:  # clients do not go the same way through the network this time
            pass
        except Exception as error:  # whose fault it is, the plain engine finds out
            trouble = reason_of(error)
            release(error)
        outcomes = self.engine.train(tasks)
        if trouble:
            self.close()
            self._make = None
            self._say(f"clients are trained one by one, since {trouble}")
        return outcomes

    def _say(self, way: str) -> None:
        """Take another way, which is not the one that was announced."""
        self.way = way
        logger.warning("%s", way)

    def _train(self, tasks: Sequence[Task], vary: bool) -> list[Outcome]:
        if private := [task.noising for task in tasks if task.noising is not None]:
            return train_stack_privately(self._learner, tasks, private)
        local, device, batches = self._learner.local, self._learner.device, tasks[0].batches
        orders = [batch_order(len(t.samples), batches, local.batch_size, t.seed) for t in tasks]
        rows = np.stack([task.samples[order] for task, order in zip(tasks, orders)], axis=1)
        steps = on_device(rows, device).flatten(1)  # (batches, num · batch size)
        decays, constants = self._pulled(tasks)
        stepper = self._stepper(len(tasks), Pulls.of(decays, vary=vary), tasks[0].part)
        offsets = self._learner.offsets([task.prior for task in tasks])
        starts = rows_of([task.start for task in tasks], stepper.stack.size)
        seeds = [task.seed for task in tasks]
        stepper.begin(starts, seeds, decays, constants, offsets, tasks[0].learning_rate)
        curves = torch.stack([stepper(batch).clone() for batch in steps], dim=1)
        vectors = stepper.stack.unload()
        losses = curves.cpu().numpy()  # this waits until all is done
        return [Outcome(vector, curve) for vector, curve in zip(vectors, losses)]

    def _pulled(self, tasks: Sequence[Task]) -> tuple[list[float], Tensor | None]:
        """The decay of every task, and a row of constants each; nothing if none is pulled."""
        if not any(task.pulls for task in tasks):
            return [], None
        sums = [[(pull.target, -2 * pull.weight) for pull in task.pulls] for task in tasks]
        return [pull_decay(task.pulls) for task in tasks], sums_of(sums, self.num_trainable)

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        if self._exams_alone:
            return self.engine.evaluate(exams)
        asked = sittings(exams, SITTING)
        with multiplying_in_tf32(self._scores_in_tf32):
            sums = gather(len(exams), asked, self.sums(asked))
        return [self._learner.score(exam, found) for exam, found in zip(exams, sums)]

    def sums(self, asked: Sequence[Sitting]) -> list[list[Sums]]:
        """Of every set, as many sittings at once as fit, those of similar lengths together.

        All are started before the first answer is waited for.
        """
        if not self._exams_alone:
            try:
                return self._sums(asked)
            except Exception as error:
                if isinstance(error, EngineError) and not isinstance(error, UndecidedError):
                    raise  # there is no memory, and alone there is not more
                self._exams_alone, trouble = True, reason_of(error)
                release(error)
            self._stacks = {}
            self._say(f"{self.way}; models are scored one by one, since {trouble}")
        return self.engine.sums(asked)

    def _sums(self, asked: Sequence[Sitting]) -> list[list[Sums]]:
        lengths = [sitting.num_samples for sitting in asked]
        order = sorted(range(len(asked)), key=lengths.__getitem__)
        started: dict[int, Tensor] = {}
        for split in ("train", "test"):
            same = [i for i in order if asked[i].split == split]
            for run in alike([lengths[i] for i in same], WORTH):
                started |= self._in_chunks(
                    same[run], lambda some: self._started([asked[i] for i in some])
                )
        stacks: dict[int, tuple[Tensor, list[int]]] = {}
        for i, each in started.items():
            stacks.setdefault(id(each), (each, []))[1].append(i)
        sums: dict[int, list[Sums]] = {}
        for each, some in stacks.values():
            sums |= zip(some, summed(each.cpu().numpy(), [asked[i].sets for i in some]))
        return [sums[i] for i in range(len(asked))]

    @torch.no_grad()
    def _started(self, asked: Sequence[Sitting]) -> list[Tensor]:
        """For each sitting, where loss and hits of all will be, (2, sittings, samples)."""
        learner, num = self._learner, round_up(len(asked))  # few sizes of stacks: each made once
        stack = self._stack(num)
        models = [sitting.model for sitting in asked]
        stack.load(rows_of(models + models[-1:] * (num - len(models)), stack.size))
        samples = [s.sets[0] if len(s.sets) == 1 else np.concatenate(s.sets) for s in asked]
        rows = np.zeros((num, max(map(len, samples))), dtype=np.int64)  # the rest are not looked at
        for row, own in zip(rows, samples):
            row[: len(own)] = own
        which, offsets = self._priors(asked, rows.shape)
        limits = self._limits(asked)
        found, step = [], max(1, self._samples // num)
        taken = on_device(rows, learner.device)
        for start in range(0, rows.shape[1], step):
            part = slice(start, start + step)
            x, y = learner.stores[asked[0].split].batch(taken[:, part].flatten())
            out = stack.forward(x, training=False)
            if which is not None:
                out = out + offsets[which[:, part].flatten()]
            loss = self._loss(out, y).view(num, -1)
            if limits is not None:
                loss = cut(loss, limits)
            hits = (out.argmax(dim=1) == y).view(num, -1) if learner.is_classifier else loss * 0
            found.append(torch.stack([loss, hits]).double())
        return [torch.cat(found, dim=2)] * len(asked)

    def _limits(self, asked: Sequence[Sitting]) -> Tensor | None:
        """Up to what a loss counts in every sitting; None if there is no limit in any."""
        if all(sitting.max_loss is None for sitting in asked):
            return None
        most = [np.inf if sitting.max_loss is None else sitting.max_loss for sitting in asked]
        return torch.tensor(most, device=self._learner.device)[:, None]

    def _priors(
        self, asked: Sequence[Sitting], shape: tuple[int, ...]
    ) -> tuple[Tensor | None, Tensor]:
        """Which prior every sample of every sitting has, and what each adds to the outputs.

        The first is None if there are no priors.
        """
        if not any(prior is not None for sitting in asked for prior in sitting.priors):
            return None, self._learner.offsets([])
        known: dict[int, Prior | None] = {id(None): None}
        numbers = {id(None): 0}
        which = np.zeros(shape, dtype=np.int64)
        for row, sitting in zip(which, asked):
            end = 0
            for prior, part in zip(sitting.priors, sitting.sets):
                start, end = end, end + len(part)
                known[id(prior)] = prior
                row[start:end] = numbers.setdefault(id(prior), len(numbers))
        device = self._learner.device
        return on_device(which, device), self._learner.offsets(list(known.values()))

    def _in_chunks(self, asks: list[int], do: Callable[[list[int]], list[T]]) -> dict[int, T]:
        """`do` for as many as fit at a time; out of memory, half as much is tried."""
        done: dict[int, T] = {}
        while len(done) < len(asks):
            left = asks[len(done) :]
            num = -(-len(left) // self._width)
            some = left[: -(-len(left) // num)]
            try:
                done |= zip(some, do(some))
            except torch.cuda.OutOfMemoryError:
                if len(some) == 1 and self._samples <= FEWEST:
                    raise EngineError("the GPU has no memory to train a single client") from None
                self.close()
                self._width, self._samples = -(-len(some) // 2), self._samples // 2
                torch.cuda.empty_cache()
        return done

    def _stepper(self, num: int, pulls: Pulls, part: TrainedPart) -> Stepper:
        learner = self._learner
        span = learner.flat.span(part)

        def make() -> Stepper:
            stack, store = self._new_stack(num), learner.stores["train"]
            stepper = Stepper(
                stack, store, self._loss, learner.local, pulls, learner.num_outputs, span
            )
            if stepper.why_not and RECORDED not in self.way:
                self.way += f"; {RECORDED}, since {stepper.why_not}"
            return stepper

        return recall(self._steppers, (num, pulls, part), make, KEPT)

    def _stack(self, num: int) -> Stack:
        stack = self._stacks.pop(num, None)
        while stack is None and self._stacks and num + sum(self._stacks) > KEPT_ROWS:
            self._stacks.pop(next(iter(self._stacks)))
        self._stacks[num] = stack or self._new_stack(num)  # the last to go
        return self._stacks[num]

    def _new_stack(self, num: int) -> Stack:
        assert self._make is not None
        stack = self._make(self._learner.flat, num)
        stack.load(self._learner.flat.vector.expand(num, -1))  # numbers, whatever memory has
        return stack

    def close(self) -> None:
        self._steppers, self._stacks = {}, {}
