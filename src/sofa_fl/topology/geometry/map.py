"""The clients' positions in two dimensions, for people to look at: classical scaling of the space.

Nothing is decided by it. Every map stands alone, to any turn or mirror; who shows several in a
row aligns them.
"""

from __future__ import annotations

import numpy as np

from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId

EXTRA = 6  # directions that are followed besides the two: they speed up convergence
STEPS = 10  # of subspace iteration: it is a picture, and good to a pixel by then
DIGITS = 4


def map_of(space: Space) -> dict[NodeId, tuple[float, float]]:
    """Where every client is on a map that keeps as much of the distances as a plane can.

    Distances by the manhattan metric are taken as euclidean ones.
    """
    flat = _round(plane(space.positions, space.weights))
    return {client: (x, y) for client, (x, y) in zip(space.clients, flat.tolist())}


def plane(positions: Floats, weights: Floats) -> Floats:
    """The two main axes of `positions`, by row; linear in their number and in their size."""
    centred = positions - np.average(positions, axis=0, weights=weights)
    n, size = centred.shape
    k = min(n, size, 2 + EXTRA)
    start = np.random.default_rng(0).standard_normal((n, k))
    basis, _ = np.linalg.qr(start)
    for _ in range(STEPS):
        basis, _ = np.linalg.qr(centred @ (centred.T @ basis))
    axes, lengths, _ = np.linalg.svd(basis.T @ centred, full_matrices=False)
    flat = basis @ (axes * lengths)
    shown = np.zeros((n, 2))
    shown[:, : min(2, k)] = flat[:, :2]
    return shown


def _round(values: Floats) -> Floats:
    """A few digits of the largest are enough to draw by."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return np.zeros_like(values)
    return np.round(values, DIGITS - 1 - int(np.floor(np.log10(largest))))
