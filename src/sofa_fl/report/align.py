"""Maps of several rounds, turned onto each other: each is good to any turn and mirror."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Places = Mapping[int, tuple[float, float]]


def align(places: Places, before: Places) -> dict[int, tuple[float, float]]:
    """`places`, turned or mirrored so that clients are as near as can be to where they were.

    By the clients that are on both (orthogonal Procrustes); distances stay what they are.
    """
    common = [client for client in places if client in before]
    if len(common) < 2:
        return dict(places)
    now = np.array([places[client] for client in common])
    then = np.array([before[client] for client in common])
    left, _, right = np.linalg.svd((now - now.mean(0)).T @ (then - then.mean(0)))
    turned = np.array(list(places.values())) @ (left @ right)
    digits = [float(f"{value:.4g}") for value in turned.ravel()]
    return dict(zip(places, zip(digits[::2], digits[1::2])))
