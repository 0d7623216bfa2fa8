"""Losses and accuracies without more digits than a run needs.

A server that crafts a model can make a mean loss depend on a single sample. So no sample's loss
counts beyond a limit, and what leaves is rounded. That makes a score tell less, not nothing: how
many scores leave is limited as well (`max_scores`), and only noise bounds what they tell.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.engine.base import Exam, Outcome, Score, Task
from sofa_fl.engine.learner import Learner
from sofa_fl.models.flat import as_vector

DIGITS = 3  # of losses of a classification, and of accuracies
ABOVE_GUESS = 2.5  # how much more than that of a blind guess a sample's loss may count
ABOVE_SQUARES = 8.0  # the same in regression, in mean squares of the targets


class CoarseLearner:
    """A learner whose losses are clipped sample by sample, and whose numbers are rounded.

    Args:
        targets: Of all samples to train on and held out; in regression, they set the scale.
    """

    def __init__(self, learner: Learner, targets: NDArray[Any]) -> None:
        self.learner = learner
        self.max_loss = ABOVE_GUESS + math.log(learner.num_outputs)
        self.digits = DIGITS
        if not learner.is_classifier:
            values = targets.reshape(len(targets), -1).astype(np.float64)
            self.max_loss = ABOVE_SQUARES * _power_of_two(float((values**2).mean()))
            self.digits = digits_for(float(values.var(axis=0).mean()))

    def train(self, task: Task) -> Outcome:
        """Train; all batches get the mean of their losses, so that a training tells one number."""
        outcome = self.learner.train(task, self.max_loss)
        mean = round(float(outcome.losses.mean(dtype=np.float64)), self.digits)
        return Outcome(outcome.params, np.full_like(outcome.losses, mean))

    def evaluate(self, exam: Exam) -> Score:
        """Mean loss and accuracy; NaN for a model that has diverged."""
        learner, num = self.learner, len(exam.samples)
        if not bool(torch.isfinite(as_vector(exam.params)).all()):
            return Score(float("nan"), float("nan"), num)
        (sums,) = learner.sums(exam.params, [exam.samples], exam.split, [exam.prior], self.max_loss)
        score = learner.score(exam, sums)
        return Score(round(score.loss, self.digits), round(score.accuracy, DIGITS), num)


def coarse_moments(targets: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums and sums of squares of targets, by column, of a rounded mean and deviation."""
    num = len(targets)
    deviations = [round(float(std), digits_for(float(std))) for std in targets.std(axis=0)]
    means = [
        round(float(mean), digits_for(std)) for mean, std in zip(targets.mean(axis=0), deviations)
    ]
    mean, std = np.array(means), np.array(deviations)
    return num * mean, num * (mean**2 + std**2)


def digits_for(scale: float) -> int:
    """So many decimals that a number of this size has three to four digits."""
    return DIGITS - math.floor(math.log10(scale)) if scale > 0 else DIGITS


def _power_of_two(value: float) -> float:
    """The next power of two, which tells nothing else of a value."""
    return 2.0 ** math.ceil(math.log2(value)) if value > 0 else 1.0
