"""What a machine computes on its samples: exactly, or noised within its site's privacy budget."""

from __future__ import annotations

import secrets
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.deploy.machine.privacy import Budget, SitePart, SitePrivacy
from sofa_fl.deploy.machine.private_learner import PrivateLearner
from sofa_fl.deploy.machine.sealed_log import Log
from sofa_fl.engine.base import Exam, Outcome, Score, Task
from sofa_fl.engine.learner import Learner
from sofa_fl.privacy.accounting import Cost, sampling_rate


class Gate:
    """All that leaves a machine's samples, but samples themselves, passes here.

    Attributes:
        told: What each part of the samples has cost, as far as this process spent of it.

    Args:
        config: Without an `epsilon`, everything passes as it is.
        spent: What answers have cost so far.
    """

    def __init__(self, learner: Learner, config: SitePrivacy, spent: Log) -> None:
        self.learner, self.config, self.budget = learner, config, Budget(config, spent)
        self.told: dict[SitePart, float] = {}

    @cached_property
    def private(self) -> PrivateLearner | None:
        if not self.config.epsilon:
            return None
        rng = np.random.default_rng(secrets.randbits(128))
        return PrivateLearner(self.learner, self.config, rng)

    def train(self, task: Task) -> Outcome:
        if self.private is None:
            return self.learner.train(task)
        rate = sampling_rate(len(task.samples), self.learner.local.batch_size)
        self._spend("train", Cost(rate, self.config.noise, task.batches))
        return self.private.train(task)

    def evaluate(self, exam: Exam, part: SitePart) -> Score:
        if self.private is None:
            return self.learner.evaluate(exam)
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
