"""A tree as arrays, so that all of its nodes are looked at together and none by recursion."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Floats = NDArray[np.float64]
Id = TypeVar("Id", bound=int)
NUMBERS = 1 << 16  # that fit into a cache


@dataclass(frozen=True)
class TreeArrays:
    """The nodes of a tree by row, parents before children, every subtree in one piece.

    Attributes:
        nodes: Their ids.
        up: The row of each one's parent; -1 for the root, which is row 0.
        size: How many nodes there are in the subtree, itself included.
        level: Longest way down to a leaf.
        is_client: Whether it stands for a client.
    """

    nodes: NDArray[np.int64]
    up: Rows
    size: Rows
    level: Rows
    is_client: NDArray[np.bool_]

    @cached_property
    def num_children(self) -> Rows:
        return np.bincount(self.up[1:], minlength=len(self.up)).astype(np.intp)

    @cached_property
    def by_parent(self) -> Rows:
        """All rows but the root's, the children of each parent side by side."""
        return 1 + np.argsort(self.up[1:], kind="stable")

    @cached_property
    def _first(self) -> Rows:
        return np.concatenate([[0], np.cumsum(self.num_children)])

    def children(self, row: int) -> Rows:
        return self.by_parent[self._first[row] : self._first[row + 1]]

    @cached_property
    def clients_before(self) -> Rows:
        """How many clients there are in the rows before each, and, at the end, in all."""
        return np.concatenate([[0], np.cumsum(self.is_client)])

    @cached_property
    def below(self) -> NDArray[np.uint64]:
        """A number for every node that tells it by the leaves below it."""
        leaf = self.num_children == 0
        tokens = np.where(self.is_client, _scatter(self.nodes), np.uint64(1)) * leaf
        before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(tokens, dtype=np.uint64)])
        return np.asarray(before[np.arange(len(self.up)) + self.size] - before[:-1], np.uint64)

    @property
    def form(self) -> int:
        """A number that is the same for trees that differ only in the ids of their clusters.

        A tree is told by its nodes and their parents.
        """
        above = np.where(self.up < 0, np.uint64(0), self.below[self.up])
        pairs = _scatter((_scatter(self.below) + np.uint64(3) * above).astype(np.uint64))
        return int(pairs.sum(dtype=np.uint64))


def arrays_of(
    walk: Sequence[Id], parent: Mapping[Id, Id | None], clients: Collection[Id]
) -> TreeArrays:
    """The arrays of the tree whose nodes are `walk`, parents first."""
    row = {node: at for at, node in enumerate(walk)}
    up = [-1 if (above := parent[node]) is None else row[above] for node in walk]
    size, level = [1] * len(up), [0] * len(up)
    for at in range(len(up) - 1, 0, -1):
        over = up[at]
        size[over] += size[at]
        if level[at] >= level[over]:
            level[over] = level[at] + 1
    return TreeArrays(
        np.array(walk, dtype=np.int64),
        np.array(up, dtype=np.intp),
        np.array(size, dtype=np.intp),
        np.array(level, dtype=np.intp),
        np.array([node in clients for node in walk], dtype=bool),
    )


def slices(num_rows: int, width: int) -> Iterator[slice]:
    """All rows, as many at a time as the processor has at hand: a thousand rows of a thousand
    numbers take as long to fetch as to work with."""
    step = max(1, NUMBERS // max(1, width))
    for start in range(0, num_rows, step):
        yield slice(start, start + step)


def interval_sums(values: Floats, low: Rows, high: Rows) -> Floats:
    """The sums of `values[low:high]`, for intervals that may lie within one another.

    By halves and halves of halves: no difference of large sums, no time that grows with depth.
    """
    sums = np.zeros((len(low), *values.shape[1:]))
    low, high = low.copy(), high.copy()
    left = np.flatnonzero(low < high)
    while len(left):
        odd = left[low[left] % 2 == 1]
        sums[odd] += values[low[odd]]
        low[odd] += 1
        odd = left[(high[left] % 2 == 1) & (low[left] < high[left])]
        high[odd] -= 1
        sums[odd] += values[high[odd]]
        low, high = low // 2, high // 2
        left = left[low[left] < high[left]]
        half = np.empty(((len(values) + 1) // 2, *values.shape[1:]))
        np.add(values[: len(values) - 1 : 2], values[1::2], out=half[: len(values) // 2])
        half[len(values) // 2 :] = values[len(values) - len(values) % 2 :]
        values = half
    return sums


def _scatter(numbers: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers that look random, and differ if `numbers` do (the finalizer of SplitMix64)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
