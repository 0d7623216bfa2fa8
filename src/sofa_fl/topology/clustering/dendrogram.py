"""The classical agglomerative tree, by joining all nodes that are each other's nearest at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sofa_fl.topology.clustering.neighbors import Neighbors, linked
from sofa_fl.topology.tree.tree_arrays import Rows


@dataclass(frozen=True)
class Dendrogram:
    """Joins by row: the clients of a space are the first rows, every join is one more.

    Attributes:
        joins: The members of each join, all of them earlier rows.
        clients: The rows of the clients in every row.
    """

    joins: list[list[int]]
    clients: list[Rows]


def dendrogram(nodes: Neighbors) -> Dendrogram:
    """Join the nearest until one is left; those at the same distance in one.

    With average linkage, joining two that are each other's nearest brings nobody nearer to
    anybody: so all such pairs can be joined at once, and the tree is that of one join at a time.
    """
    joins = list[list[int]]()
    clients = [np.array([row]) for row in range(nodes.size)]
    rank = list(range(nodes.size))  # a new node takes the rank of its first member
    while len(nodes.alive) > 1:
        groups = sorted(mutual(*nodes.nearest()), key=lambda group: min(rank[r] for r in group))
        nodes.join(groups)
        for group in groups:
            joins.append(group.tolist())
            clients.append(np.concatenate([clients[member] for member in group]))
            rank.append(rank[group[0]])
    return Dendrogram(joins, clients)


def mutual(nodes: Rows, nearest: Rows) -> list[Rows]:
    """The groups of nodes that are each other's nearest, given the nearest of every node."""
    most = 1 + int(nodes.max())
    both = np.isin(nodes * most + nearest, nearest * most + nodes)
    return linked(nodes[both], nearest[both])
