"""Into which parts a cluster falls, by k-means, and whether they are worth it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from sofa_fl.topology.clustering.separation import CLEARLY, FACTOR, Pairs, Separation
from sofa_fl.topology.geometry.node_positions import Floats, NodePositions
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId
from sofa_fl.topology.tree.tree_arrays import Rows


def partitions(
    children: Sequence[NodeId], positions: Floats, weights: Floats, numbers: Iterable[int]
) -> Iterator[tuple[tuple[NodeId, ...], ...]]:
    """K-means partitions of `children` into so many parts, fewer than there are children."""
    numbers = list(numbers)
    if not numbers:
        return
    positions = positions - positions.mean(axis=0)
    # To nine digits, and in an order that depends on the positions alone: neither the last bit of
    # a mean nor a client's number must steer k-means.
    positions = (positions / (np.abs(positions).max() or 1.0)).round(9)
    order, distinct = _sorted(positions)
    for k in numbers:
        if k > min(len(children) - 1, distinct):
            return
        with warnings.catch_warnings():  # of positions so near that they are one to k-means
            warnings.simplefilter("ignore", ConvergenceWarning)
            means = KMeans(k, n_init=4, random_state=0).fit(
                positions[order], sample_weight=weights[order]
            )
        groups: dict[int, list[NodeId]] = {}
        for row, label in zip(order, means.labels_):
            groups.setdefault(int(label), []).append(children[row])
        if len(groups) < k:
            return
        yield tuple(tuple(sorted(group)) for group in groups.values())


def _sorted(positions: Floats) -> tuple[Rows, int]:
    """The rows in order of their columns, the first one first, and how many are distinct.

    Few columns tell most rows apart, and then the others need no sorting.
    """
    num = 1
    while True:
        order = np.lexsort(positions[:, :num].T[::-1])
        new = (np.diff(positions[order, :num], axis=0) != 0).any(axis=1)
        if new.all() or num >= positions.shape[1]:
            return order, 1 + int(new.sum())
        num *= 4


class Parts:
    """Parts of the children of clusters, by row: how far apart their clients are."""

    def __init__(self, space: Space, bodies: NodePositions, parts: Sequence[Rows]) -> None:
        order = bodies.order
        chosen, self._clients = list[Rows](), list[list[Rows]]()
        at = 0
        for part in parts:
            self._clients.append([])
            for child in part[bodies.settled[part]].tolist():
                rows = np.arange(child, child + order.size[child])
                chosen.append(rows[order.is_client[rows] & bodies.settled[rows]])
                self._clients[-1].append(np.arange(at, at := at + len(chosen[-1])))
        self._contrast = Separation(space, bodies.positions[np.concatenate(chosen)])
        self._inner = dict[int, Pairs | None]()
        self._of_clients = all(len(rows) == 1 for part in self._clients for rows in part)

    def stand_out(self) -> bool:
        """Whether every part of several children stands out against each of the others.

        As in DMAC, one that is a client alone may only be noisier than the rest, and of two parts
        that are not equally noisy the gap counts from halfway. Clusters have trained apart.
        """
        for a in sorted(range(len(self._clients)), key=lambda part: len(self._clients[part])):
            if (inner := self.inner(a)) is None:
                continue
            for b in range(len(self._clients)):
                if a == b:
                    continue
                outer, other = self.outer(a, b), self.inner(b)
                alone = sum(map(len, self._clients[b])) == 1
                factor = FACTOR if self._of_clients and not alone else CLEARLY
                halfway = (inner.mean + other.mean) / 2 if other else 0.0
                if not self._contrast.stands_out(inner, outer, factor, halfway):
                    return False
        return True

    def set_apart(self) -> bool:
        """Whether either of two parts is far from the other for how far its children are apart."""
        outer = self.outer(0, 1)
        least = outer.mean / self._contrast.raised(CLEARLY)
        inners = [self.inner(part) for part in (0, 1)]
        return any(inner is not None and inner.mean < least for inner in inners)

    def inner(self, part: int) -> Pairs | None:
        """The pairs of clients of different children of a part."""
        if part not in self._inner:
            self._inner[part] = self._contrast.within(self._clients[part])
        return self._inner[part]

    def outer(self, a: int, b: int) -> Pairs:
        """The pairs of a client of one part and one of another."""
        return self._contrast.between(*(np.concatenate(self._clients[part]) for part in (a, b)))
