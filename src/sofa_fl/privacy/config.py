"""The privacy that a run is to keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyConfig:
    """Differential privacy of all that a client answers, with respect to any one of its samples.

    Neighbours are data with one sample more or less; how many samples a client has is public. The
    samples that it trains on and those that it holds out are different ones, so each part has the
    budget for itself. Test samples are scored as they are: they measure a run, and decide nothing.

    Attributes:
        epsilon: What all answers of a client may cost in a run; 0: nothing is noised.
        delta: With which probability they may cost more.
        clip: Length to which the gradient of a sample is cut.
        noise: Of a batch's summed gradients, in units of what one sample can change. By default,
            so much that the warm-up and all rounds cost `epsilon`.
        count_noise: The same, of the class counts that the class-mix correction needs, once a run.
        scores: How many models a client may be asked to score on its held-out samples, per round.
            Without any, SOFA-FL goes by the noised models alone.
        score_noise: The noise of a score, in units of `max_loss`. By default, so much that
            `scores` in every round cost `epsilon`.
        max_loss: Value to which the loss of a sample is cut in a score; a blind guess among ten
            classes loses 2.3, and what loses more need not be told apart.
    """

    epsilon: Annotated[float, Ge(0)] = 0.0
    delta: Annotated[float, Interval(gt=0, lt=1)] = 1e-5
    clip: Annotated[float, Gt(0)] = 1.0
    noise: Annotated[float, Gt(0)] | None = None
    count_noise: Annotated[float, Gt(0)] = 20.0
    scores: Annotated[int, Ge(0)] = 0
    score_noise: Annotated[float, Gt(0)] | None = None
    max_loss: Annotated[float, Gt(0)] = 2.5
