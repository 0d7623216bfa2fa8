"""Positions by their principal components: what stands out from noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sofa_fl.topology.geometry.space import Floats, Space

FEW = 8  # of fewer directions none can be told to be noise
RARELY = 2.02  # what Tracy and Widom's largest variance exceeds with a probability of 1%
ROUNDING = 1e-9  # variances below this fraction of the largest are none
TINY = 1e-6


def without_noise(space: Space) -> Space:
    """The space with the directions only in which clients differ by more than noise.

    The noise of a client spreads over all directions, while groups differ in few. Of two distances
    in many directions, noise decides which is larger; without it, groups are apart.
    If nothing stands out, all clients are at one place. With few directions, or by another metric
    than the euclidean, which knows no directions, the space is as it was.
    """
    if space.metric != "euclidean":
        return space
    centred = space.positions - space.positions.mean(axis=0)
    axes, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    variances = lengths**2
    variances = variances[variances > ROUNDING * variances.max(initial=0.0)]
    if len(variances) < FEW:
        return space
    k = num_signals(variances)
    positions = axes[:, :k] * lengths[:k] if k else np.zeros((len(axes), 1))
    return replace(space, positions=positions)


def num_signals(variances: Floats) -> int:
    """How many of the variances along principal directions, the largest first, are not noise."""
    k = 0
    while k < len(variances) - 2 and variances[k] > most_by_noise(variances[k:]):
        k += 1
    return k


def most_by_noise(variances: Floats) -> float:
    """The largest variance that noise may have, if all but the largest are noise.

    The variances of noise fill a band from (1 - w)² to (1 + w)² of their mean (Marchenko and Pastur
    1967), so the smallest tells how wide it is. The largest of few varies around the upper edge
    (Johnstone 2001); w² is the ratio of the number of clients to that of directions.
    """
    mean, n = float(variances.mean()), float(len(variances) + 1)
    w = max(1 - math.sqrt(float(variances.min()) / mean), TINY)
    m = n / w**2
    spread = (math.sqrt(n) + math.sqrt(m)) * math.cbrt(1 / math.sqrt(n) + 1 / math.sqrt(m)) / m
    return mean * ((1 + w) ** 2 + RARELY * spread)
