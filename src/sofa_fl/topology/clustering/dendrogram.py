"""The classical agglomerative tree, by joining all nodes that are each other's nearest at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sofa_fl.topology.clustering.fast.nearest_neighbors import Nearest
from sofa_fl.topology.geometry.space import Space

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Dendrogram:
    """Joins by row: the clients of a space are the first rows, every join is one more.

    Attributes:
        joins: The members of each join, all of them earlier rows.
        order: The clients, those of every row side by side.
        first: Where in `order` the clients of each row begin.
        last: One behind where they end.
    """

    joins: list[list[int]]
    order: Rows
    first: Rows
    last: Rows

    def positions(self, row: int) -> Rows:
        """Where in `order` the clients of a row are."""
        return np.arange(self.first[row], self.last[row])


def dendrogram(space: Space) -> Dendrogram:
    """Join the nearest until one is left; those at the same distance in one.

    With average linkage, joining two that are each other's nearest brings nobody nearer to
    anybody: so all such pairs can be joined at once, and the tree is that of one join at a time.
    """
    nodes, joins = Nearest(space), list[list[int]]()
    while nodes.num_alive > 1:
        groups = nodes.mutual()
        nodes.join(groups)
        joins += [group.tolist() for group in groups]
    n = len(space.clients)
    size = np.ones(n + len(joins), dtype=np.intp)
    for at, join in enumerate(joins):
        size[n + at] = size[join].sum()
    first = np.zeros(n + len(joins), dtype=np.intp)
    for at in range(len(joins) - 1, -1, -1):
        start = first[n + at]
        for member in joins[at]:
            first[member], start = start, start + size[member]
    order = np.empty(n, dtype=np.intp)
    order[first[:n]] = np.arange(n)
    return Dendrogram(joins, order, first, first + size)
