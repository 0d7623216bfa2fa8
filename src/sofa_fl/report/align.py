"""Maps of several rounds, turned onto each other: each is good to any turn and mirror."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Positions = Mapping[int, tuple[float, float]]


def align(positions: Positions, before: Positions) -> dict[int, tuple[float, float]]:
    """`positions`, turned or mirrored so that clients are as near as can be to where they were.

    By the clients that are on both (orthogonal Procrustes); distances stay what they are.
    """
    common = [client for client in positions if client in before]
    if len(common) < 2:
        return dict(positions)
    now = np.array([positions[client] for client in common])
    then = np.array([before[client] for client in common])
    left, _, right = np.linalg.svd((now - now.mean(0)).T @ (then - then.mean(0)))
    turned = np.array(list(positions.values())) @ (left @ right)
    digits = [float(f"{value:.4g}") for value in turned.ravel()]
    return dict(zip(positions, zip(digits[::2], digits[1::2])))
