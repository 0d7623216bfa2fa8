"""The separation test for many clients: distances by matrix products, in blocks.

A product is faster than a difference per pair, and blocks need memory for some of the pairs only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add

import numpy as np
from scipy.spatial.distance import cdist

from sofa_fl.topology.clustering.separation import PairDistances, Separation, pair_distances
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import Rows

BLOCK = 1 << 20  # distances measured at a time
EPS = float(np.finfo(np.float64).eps)


def blocks(rows: Rows, width: int) -> Iterator[Rows]:
    """The rows in blocks, so that the distances of a block to `width` others fit into memory."""
    step = max(1, BLOCK // width)
    return (rows[start : start + step] for start in range(0, len(rows), step))


class FastSeparation(Separation):
    """The separation test with distances by matrix products; those below their error are 0."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._positions = space.positions
        if space.metric == "euclidean":  # smaller numbers lose fewer digits in a product
            self._positions = space.positions - space.positions.mean(axis=0)

    def between(self, a: Rows, b: Rows) -> PairDistances:
        return reduce(
            add, (pair_distances(self.distances(block, b)) for block in blocks(a, len(b)))
        )

    def mean_distances(self, group: Rows) -> Floats:
        every = blocks(group, len(group))
        sums = [self.distances(block, group).sum(axis=1) for block in every]
        return np.asarray(np.concatenate(sums) / (len(group) - 1))

    def within(self, parts: Sequence[Rows]) -> PairDistances:
        rows = np.concatenate(parts)
        part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        start, pairs = 0, list[PairDistances]()
        for block in blocks(rows, len(rows)):
            later = part_of[start:] > part_of[start : start + len(block), None]
            if later.any():
                pairs.append(pair_distances(self.distances(block, rows[start:])[later]))
            start += len(block)
        return reduce(add, pairs)

    def distances(self, a: Rows, b: Rows) -> Floats:
        x, y = self._positions[a], self._positions[b]
        if self.space.metric == "manhattan":
            return np.asarray(cdist(x, y, "cityblock"))
        if self.space.metric == "cosine":
            squares, distances = np.ones(len(x)), 1 - x @ y.T
        else:
            squares = np.einsum("ij,ij->i", x, x)
            distances = np.add.outer(squares, np.einsum("ij,ij->i", y, y)) - 2 * (x @ y.T)
        error = 17 * (x.shape[1] + 2) * EPS * squares
        distances[distances <= error[:, None]] = 0.0
        return np.asarray(distances)
