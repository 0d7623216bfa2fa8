"""A tree as arrays, so that rules can look at all of its nodes at once and none by recursion."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Id = TypeVar("Id", bound=int)


@dataclass(frozen=True)
class TreeArrays:
    """The nodes of a tree by row: parents before children, every subtree contiguous.

    Attributes:
        nodes: Their ids.
        parents: The row of each node's parent; -1 for the root, which is row 0.
        sizes: The number of nodes in each subtree, its root included.
        level: The longest way down to a leaf.
        is_client: Whether the node is a client.
    """

    nodes: NDArray[np.int64]
    parents: Rows
    sizes: Rows
    level: Rows
    is_client: NDArray[np.bool_]

    @cached_property
    def num_children(self) -> Rows:
        return np.bincount(self.parents[1:], minlength=len(self.parents)).astype(np.intp)

    @cached_property
    def by_parent(self) -> Rows:
        """All rows but the root's, the children of each parent side by side."""
        return 1 + np.argsort(self.parents[1:], kind="stable")

    @cached_property
    def first_child(self) -> Rows:
        """Where in `by_parent` the children of each row begin, and one more: where all end."""
        return np.concatenate([[0], np.cumsum(self.num_children)])

    def children(self, row: int) -> Rows:
        return self.by_parent[self.first_child[row] : self.first_child[row + 1]]


def arrays_of(
    walk: Sequence[Id], parent: Mapping[Id, Id | None], clients: Collection[Id]
) -> TreeArrays:
    """The arrays of the tree whose nodes are `walk`, parents first."""
    row_of = {node: row for row, node in enumerate(walk)}
    parents = [-1 if (up := parent[node]) is None else row_of[up] for node in walk]
    sizes, level = [1] * len(walk), [0] * len(walk)
    for row in range(len(walk) - 1, 0, -1):
        above = parents[row]
        sizes[above] += sizes[row]
        level[above] = max(level[above], level[row] + 1)
    return TreeArrays(
        np.array(walk, dtype=np.int64),
        np.array(parents, dtype=np.intp),
        np.array(sizes, dtype=np.intp),
        np.array(level, dtype=np.intp),
        np.array([node in clients for node in walk], dtype=bool),
    )
