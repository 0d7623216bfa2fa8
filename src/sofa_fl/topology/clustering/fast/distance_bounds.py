"""How far nodes are from their parents, at most: from what is known of all, in no time.

What is near enough by these numbers is not looked at again; the others are measured.
"""

from __future__ import annotations

import numpy as np

from sofa_fl.topology.clustering.fast.mean_distances import SURE, blur
from sofa_fl.topology.geometry.node_positions import Floats, NodePositions
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree.tree_arrays import Rows


def to_rest_at_most(space: Space, bodies: NodePositions, rows: Rows) -> Floats:
    """Distances to the parents, each without that child, to the power of `Ruler.power`.

    A node is as many times farther from its siblings than from all as they are fewer.
    """
    if space.metric != "euclidean":
        return np.full(len(rows), np.inf)
    up = bodies.order.up[rows]
    whole, part = bodies.weights[up], bodies.weights[rows]
    left = whole - part
    squares = bodies.squares_to_parent[rows] * (whole / left) ** 2
    slack = blur(space, bodies) * (whole / left) ** 2
    if space.linkage == "average":
        inertia = whole * bodies.inertia[up] - part * bodies.inertia[rows]
        inertia = np.maximum(0.0, inertia - part * left / whole * squares) / left
        squares = squares + bodies.inertia[rows] + inertia
    return np.asarray(squares * (1 + SURE) + slack)


def incoherences_at_most(space: Space, bodies: NodePositions) -> Floats:
    """As `Space.incoherences`, which takes trifles for nothing."""
    if space.metric != "euclidean" or space.scale <= 0:
        return space.incoherences(bodies)
    n = bodies.num_children
    several = (n > 1) & ~bodies.order.is_client
    spreads = np.zeros(len(n))
    spreads[several] = bodies.scatter[several] / bodies.weights[several]
    spreads[several] *= n[several] / (n[several] - 1)
    return np.asarray(np.sqrt(spreads) / space.scale)
