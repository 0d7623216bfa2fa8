"""What a machine computes on its samples: rounded, or noised within its site's privacy budget.

Noised: by DP-SGD, and by noised sums of losses. The noise comes from the machine, never from the
server's seed.
"""

from __future__ import annotations

import secrets
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import Exam, Noising, Outcome, Score, Task
from sofa_fl.engine.learner import Learner
from sofa_fl.engine.private import check_private_network, train_privately
from sofa_fl.privacy.accounting import Cost, sampling_rate
from sofa_fl_flower.machine.coarse import CoarseLearner
from sofa_fl_flower.machine.privacy import Budget, SitePart, SitePrivacy
from sofa_fl_flower.machine.sealed_log import Log


class SiteNoise:
    """Draws that nobody else can repeat."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def chosen(self, samples: Samples, rate: float) -> Samples:
        return samples[self.rng.random(len(samples)) < rate]

    def normal(self, size: int) -> Tensor:
        return torch.from_numpy(self.rng.standard_normal(size)).float()


class PrivateLearner:
    """A learner whose outcomes and scores tell little of any single sample."""

    def __init__(self, learner: Learner, config: SitePrivacy, rng: np.random.Generator) -> None:
        self.learner, self.config, self.rng = learner, config, rng
        check_private_network(learner)

    @property
    def noising(self) -> Noising:
        return Noising(self.config.clip, self.config.noise, self.config.max_loss)

    def train(self, task: Task) -> Outcome:
        """Minimize loss plus pulls, one optimizer step per batch; batches are drawn by chance."""
        return train_privately(self.learner, task, self.noising, SiteNoise(self.rng))

    def evaluate(self, exam: Exam) -> Score:
        """Mean loss and accuracy, noised; a sample's loss is cut to `max_loss`."""
        learner, config, num = self.learner, self.config, len(exam.samples)
        (sums,) = learner.sums(
            exam.params, [exam.samples], exam.split, [exam.prior], config.max_loss
        )
        loss, hits = sums.sum(axis=0)
        # A sample changes (loss / max_loss, hits) by at most the diagonal of a unit square.
        noise = config.score_noise * 2**0.5 * self.rng.standard_normal(2)
        mean = (loss + config.max_loss * noise[0]) / num
        accuracy = (hits + noise[1]) / num
        return Score(float(np.clip(mean, 0, config.max_loss)), float(np.clip(accuracy, 0, 1)), num)

    def noised_counts(self, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[float]:
        """Class counts with noise, none below 0."""
        noise = self.config.score_noise * self.rng.standard_normal(len(counts))
        return [float(count) for count in np.maximum(counts + noise, 0)]


class Gate:
    """All that leaves a machine's samples, but samples themselves, passes here.

    Attributes:
        told: What each part of the samples has cost, as far as this process spent of it.

    Args:
        config: Without an `epsilon`, there is no noise.
        spent: What answers have cost so far.
        coarse: Without noise, what rounds losses and accuracies; None: nothing does.
    """

    def __init__(
        self, learner: Learner, config: SitePrivacy, spent: Log, coarse: CoarseLearner | None
    ) -> None:
        self.learner, self.config, self.budget = learner, config, Budget(config, spent)
        self.plain: Learner | CoarseLearner = coarse or learner
        self.told: dict[SitePart, float] = {}

    @cached_property
    def private(self) -> PrivateLearner | None:
        if not self.config.epsilon:
            return None
        rng = np.random.default_rng(secrets.randbits(128))
        return PrivateLearner(self.learner, self.config, rng)

    def train(self, task: Task) -> Outcome:
        if self.private is None:
            return self.plain.train(task)
        rate = sampling_rate(len(task.samples), self.learner.local.batch_size)
        self._spend("train", Cost(rate, self.config.noise, task.batches))
        return self.private.train(task)

    def evaluate(self, exam: Exam, part: SitePart) -> Score:
        if self.private is None:
            return self.plain.evaluate(exam)
        self._spend(part, Cost(1.0, self.config.score_noise))
        return self.private.evaluate(exam)

    def class_counts(self, labels: NDArray[Any], num: int) -> NDArray[Any]:
        """The training samples of each class; with privacy, noised once and for all."""
        counts = np.bincount(labels, minlength=num)
        if self.private is None:
            return counts
        noised = self.budget.recorded("counts")
        if noised is None or len(noised) != len(counts):
            noised = self.private.noised_counts(counts)
            self._spend("train", Cost(1.0, self.config.score_noise), counts=noised)
        return np.array(noised)

    def _spend(self, part: SitePart, cost: Cost, **record: Any) -> None:
        self.told[part] = self.budget.spend(part, cost, **record)
