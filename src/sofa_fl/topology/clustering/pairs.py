"""Nodes of a tree by row, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sofa_fl.topology.geometry.space import Floats, NodePositions, Space
from sofa_fl.topology.tree import NodeId
from sofa_fl.topology.tree.tree_arrays import Rows


def ids(nodes: NodePositions, *rows: int) -> tuple[NodeId, ...]:
    """The ids of nodes by row."""
    return tuple(NodeId(node) for node in nodes.arrays.nodes[list(rows)].tolist())


def as_pairs(a: Rows, b: Rows) -> Iterator[tuple[int, int]]:
    """The rows of `a` and `b` two by two."""
    return zip(a.tolist(), b.tolist())


def children_of(nodes: NodePositions, parents: Rows) -> Rows:
    """The children of these parents that have a position, parent by parent."""
    rows = np.concatenate([nodes.arrays.children(parent) for parent in parents.tolist()])
    return np.asarray(rows[nodes.known[rows]])


def distances_between(space: Space, nodes: NodePositions, a: Rows, b: Rows) -> Floats:
    """The distances D of all nodes in `a` to all in `b`."""
    return space.distances(
        nodes.positions[a], nodes.positions[b], nodes.variances[a], nodes.variances[b]
    )


def sibling_pairs(space: Space, nodes: NodePositions) -> tuple[Rows, Rows, Floats]:
    """All pairs of sibling clusters and their distances D, parent by parent, the nearest first."""
    pairs = [(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0))]
    for parent in np.flatnonzero(nodes.num_children > 1):
        rows = children_of(nodes, np.array([parent]))
        rows = rows[~nodes.arrays.is_client[rows]]
        a, b = np.triu_indices(len(rows), 1)
        if len(a):
            distances = distances_between(space, nodes, rows, rows)[a, b]
            order = np.argsort(distances, kind="stable")
            pairs.append((rows[a[order]], rows[b[order]], distances[order]))
    a, b, distances = (np.concatenate(columns) for columns in zip(*pairs))
    return a, b, distances
