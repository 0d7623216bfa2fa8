"""The separation test: whether a group of clients stands out against others.

It compares the distances within the group to those between the group and the others. Distances are
to the power in which noise adds up (squares, for the euclidean metric): that of two clients is what
tells them apart, plus the noise of each. Every client counts once, whatever its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import stdtrit

from sofa_fl.topology.geometry.space import Floats, NodePositions, Space
from sofa_fl.topology.tree.tree_arrays import Rows

FACTOR = 1.06  # distances to others are at least this many times those within the group
CLEARLY = 1.5  # the same, where there may be another reason: one client may be noisier than the
# rest, and clusters that train apart drift apart
DEVIATIONS = 1.5  # and more by this many standard deviations of the distances
CHANCE = 0.002  # and by more than would happen this often if there were no difference
BLOCK = 1 << 20  # distances measured at a time


@dataclass(frozen=True, slots=True)
class Pairs:
    """Distances of pairs of clients: how many, their mean, their squared deviations from it.

    Numbers, or arrays: then `stands_out` tests all of them.
    """

    num: float | Floats
    mean: float | Floats
    scatter: float | Floats

    def __add__(self, other: Pairs) -> Pairs:
        num, difference = self.num + other.num, other.mean - self.mean
        mean = self.mean + difference * other.num / num
        between = difference**2 * self.num * other.num / num
        return Pairs(num, mean, self.scatter + other.scatter + between)


def stands_out(
    inner: Pairs, outer: Pairs, factor: float | Floats, least: float | Floats = 0.0
) -> NDArray[np.bool_]:
    """Whether the outer pairs are farther apart than the inner ones, clearly and not by chance.

    Clearly: by `factor`, and by 1.5 standard deviations of the distances, so that few overlap.
    Not by chance: Student's t, which asks for more where there are few pairs.
    Inner pairs nearer than `least` count as that far.
    """
    base = np.maximum(inner.mean, least)
    degrees = inner.num + outer.num - 2
    deviation = np.sqrt((inner.scatter + outer.scatter) / degrees)
    t = np.reshape([_student(each) for each in np.ravel(degrees).tolist()], np.shape(degrees))
    chance = t * np.sqrt(1 / inner.num + 1 / outer.num)
    far_enough = outer.mean - base > deviation * np.maximum(DEVIATIONS, chance)
    return np.asarray(far_enough & (outer.mean >= base * factor))


@cache
def _student(degrees: float) -> float:
    """What Student's t exceeds with a probability of `CHANCE`."""
    return float(stdtrit(degrees, 1 - CHANCE))


def power_of(space: Space) -> int:
    """The power of distances in which noise adds up."""
    return 2 if space.metric == "euclidean" else 1


class Separation:
    """The separation test for clients at some positions of a space, by row."""

    def __init__(self, space: Space, positions: Floats) -> None:
        self._space = space
        self._positions = positions
        if space.metric == "euclidean":  # the nearer to zero, the fewer digits a product loses
            self._positions = positions - space.positions.mean(axis=0)
        self.factor, self.clearly = (f ** power_of(space) for f in (FACTOR, CLEARLY))

    def between(self, a: Rows, b: Rows) -> Pairs:
        """The pairs of one client of `a` and one of `b`."""
        step = max(1, BLOCK // len(b))
        blocks = (a[start : start + step] for start in range(0, len(a), step))
        return _total([_pairs(self._distances(block, b)) for block in blocks])

    def within(self, parts: Sequence[Rows]) -> Pairs | None:
        """The pairs of clients of different parts, if there are any."""
        if len(parts) < 2:
            return None
        rows = np.concatenate(parts)
        part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        step, blocks = max(1, BLOCK // len(rows)), list[Pairs]()
        for start in range(0, len(rows), step):
            block = self._distances(rows[start : start + step], rows[start:])
            later = part_of[start:] > part_of[start : start + step, None]
            if later.any():
                blocks.append(_pairs(block[later]))
        return _total(blocks)

    def _distances(self, a: Rows, b: Rows) -> Floats:
        """To the power of the metric, by one matrix product: what may be its rounding is zero."""
        x, y = self._positions[a], self._positions[b]
        if self._space.metric == "manhattan":
            return np.asarray(cdist(x, y, "cityblock"))
        if self._space.metric == "cosine":
            squares, distances = np.ones(len(x)), 1 - x @ y.T
        else:
            squares = np.einsum("ij,ij->i", x, x)
            distances = np.add.outer(squares, np.einsum("ij,ij->i", y, y)) - 2 * (x @ y.T)
        error = 17 * (x.shape[1] + 2) * np.finfo(np.float64).eps * squares
        distances[distances <= error[:, None]] = 0.0
        return np.asarray(distances)


class PartSeparation:
    """The separation test for parts of the children of clusters."""

    def __init__(self, space: Space, nodes: NodePositions, parts: Sequence[Rows]) -> None:
        """Take the rows of the children in each part."""
        self._parts, rows = list[list[Rows]](), list[int]()
        for part in parts:
            self._parts.append([])
            for child in part.tolist():
                clients = nodes.arrays.clients(child)
                clients = clients[nodes.known[clients]].tolist()
                if clients:
                    self._parts[-1].append(np.arange(len(rows), len(rows) + len(clients)))
                    rows += clients
        self._separation = Separation(space, nodes.positions[rows])
        self._inner = [self._separation.within(part) for part in self._parts]

    def stand_out(self) -> bool:
        """Whether every part of several children stands out against each of the others.

        As in DMAC, a part that is a client alone may only be noisier than the rest, and of two
        parts that are not equally noisy the gap counts from halfway. Clusters have trained apart.
        """
        of_clients = all(len(child) == 1 for part in self._parts for child in part)
        for a, inner in enumerate(self._inner):
            for b, other in enumerate(self._inner):
                if a == b or inner is None:
                    continue
                alone = sum(map(len, self._parts[b])) == 1
                test = self._separation
                factor = test.factor if of_clients and not alone else test.clearly
                halfway = (inner.mean + other.mean) / 2 if other else 0.0
                if not stands_out(inner, self.outer(a, b), factor, halfway):
                    return False
        return True

    def set_apart(self) -> bool:
        """Whether either of two parts is far from the other for how far its children are apart."""
        least = self.outer(0, 1).mean / self._separation.clearly
        return any(inner is not None and inner.mean < least for inner in self._inner)

    def outer(self, a: int, b: int) -> Pairs:
        """The pairs of a client of one part and one of another."""
        a_rows, b_rows = (np.concatenate(self._parts[part]) for part in (a, b))
        return self._separation.between(a_rows, b_rows)


def _pairs(distances: Floats) -> Pairs:
    mean = float(distances.mean())
    deviations = distances.ravel() - mean
    return Pairs(distances.size, mean, float(deviations @ deviations))


def _total(blocks: Sequence[Pairs]) -> Pairs:
    first, *rest = blocks
    return sum(rest, first)
