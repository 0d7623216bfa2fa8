"""The middle of several models: a mean, or something that a few bad ones cannot move far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from sofa_fl.models.flat import Vector, mean

Aggregate = Literal["mean", "median", "trimmed"]
BLOCK = 1 << 24  # numbers sorted at a time


def aggregate(
    models: Sequence[Vector], weights: Sequence[float], how: Aggregate = "mean", trim: float = 0.25
) -> Vector:
    """The mean of models by `weights`; or, number by number, their median or trimmed mean.

    The latter two (arXiv:1803.01498) count every model once: who sends a bad one may as well claim
    any weight. The trimmed mean leaves out the lowest and the highest `trim` of all, one of three
    at least; of two models nothing can be left out.
    """
    n = len(models)
    cut = (n - 1) // 2 if how == "median" else min(math.ceil(trim * n), (n - 1) // 2)
    if how == "mean" or n < 3 or not cut:
        return mean(models, weights if how == "mean" else [1.0] * n)
    middle = torch.empty_like(models[0])
    size = max(1, BLOCK // n)
    for start in range(0, len(middle), size):
        block = torch.stack([model[start : start + size] for model in models], dim=1)
        middle[start : start + size] = _sorted(block)[:, cut : n - cut].mean(dim=1)
    return middle


def _sorted(block: Tensor) -> Tensor:
    return torch.sort(block, dim=1).values
