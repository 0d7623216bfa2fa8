"""Which nodes may be nearer to another parent than to their own, by the euclidean metric."""

from __future__ import annotations

import numpy as np

from sofa_fl.topology.clustering.fast.mean_distances import SURE, slack_of
from sofa_fl.topology.clustering.fast.rough_distances import TRIFLE, RoughDistances
from sofa_fl.topology.geometry.node_positions import Floats, NodePositions
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree.tree_arrays import Rows

BLOCK = 1 << 20  # distances measured at a time


def may_move(
    space: Space, nodes: NodePositions, children: Rows, parents: Rows, tolerance: float
) -> Rows:
    """Those of `children` to which another of `parents` may be near enough."""
    distances = RoughDistances(space, nodes.positions, nodes.variances)
    columns, step = distances.columns(parents), max(1, BLOCK // len(parents))
    kept = []
    for start in range(0, len(children), step):
        block = children[start : start + step]
        rough, error = distances.rough(block, columns)
        present = np.searchsorted(parents, nodes.arrays.parents[block])
        rough[np.arange(len(block)), present] = np.inf
        nearest = rough.min(axis=1) * (1 - TRIFLE) - error
        kept.append(block[nearest * (1 + tolerance) ** 2 < _to_rest_at_most(space, nodes, block)])
    return np.concatenate([children[:0], *kept])


def _to_rest_at_most(space: Space, nodes: NodePositions, rows: Rows) -> Floats:
    """Squared distances to the parents without the node, at most.

    The farther it is from the rest than from its parent, the larger its share in the parent.
    """
    up = nodes.arrays.parents[rows]
    total, part = nodes.weights[up], nodes.weights[rows]
    rest = total - part
    apart = nodes.positions[rows] - nodes.positions[up]
    squares = np.einsum("ij,ij->i", apart, apart) * (total / rest) ** 2
    slack = slack_of(space, nodes) * (total / rest) ** 2
    if space.linkage == "average":
        variances = total * nodes.variances[up] - part * nodes.variances[rows]
        variances = np.maximum(0.0, variances - part * rest / total * squares) / rest
        squares = squares + nodes.variances[rows] + variances
    return np.asarray(squares * (1 + SURE) + slack)
