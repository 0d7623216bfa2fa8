"""The privacy that a run is to keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyConfig:
    """Differential privacy of all answers of a client, with respect to any one of its samples.

    Attributes:
        epsilon: The privacy budget for all answers of a client in a run; 0 adds no noise.
        delta: The probability with which answers may cost more than `epsilon`.
        clip: Length to which the gradient of a sample is clipped.
        noise: The noise on a batch's summed gradients, in units of what one sample can change. By
            default, it is so large that the warm-up and all rounds together cost `epsilon`.
        count_noise: The same for the class counts that the class-mix correction needs, once per
            run.
        scores: How many models a client may be asked to score on its held-out samples, per round.
            With 0, SOFA-FL uses only the noisy models.
        score_noise: The noise of a score, in units of `max_loss`. By default, it is so large that
            `scores` in every round cost `epsilon`.
        max_loss: Value to which the loss of a sample is clipped in a score. A blind guess among ten
            classes loses 2.3, and higher losses need not be distinguished.
    """

    epsilon: Annotated[float, Ge(0)] = 0.0
    delta: Annotated[float, Interval(gt=0, lt=1)] = 1e-5
    clip: Annotated[float, Gt(0)] = 1.0
    noise: Annotated[float, Gt(0)] | None = None
    count_noise: Annotated[float, Gt(0)] = 20.0
    scores: Annotated[int, Ge(0)] = 0
    score_noise: Annotated[float, Gt(0)] | None = None
    max_loss: Annotated[float, Gt(0)] = 2.5
