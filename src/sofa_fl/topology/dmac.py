"""Dynamic multi-branch agglomerative clustering (the paper's Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from scipy.sparse.csgraph import connected_components

from sofa_fl.topology.space import Space, join, pick
from sofa_fl.topology.tree import NodeId, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class DmacConfig:
    """How wide the tree is.

    Attributes:
        increase: Pairs nearer than the smallest distance times this are joined in one step
            (gamma): 1 gives a binary tree but for ties, more gives a wider, flatter one.
    """

    increase: Annotated[float, Ge(1)] = 1.05


def dmac(space: Space, config: DmacConfig) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward."""
    parent: dict[NodeId, NodeId | None] = {}
    next_id = 1 + max(space.clients)
    bodies = dict(space.bodies)
    nodes = list(space.clients)
    while len(nodes) > 1:
        distances = space.between(pick(bodies, nodes), pick(bodies, nodes))
        np.fill_diagonal(distances, np.inf)
        linked = distances <= distances.min() * config.increase
        _, component = connected_components(linked, directed=False)
        left: list[NodeId] = []
        for label in dict.fromkeys(component):
            linked_nodes = [nodes[row] for row in np.flatnonzero(component == label)]
            if len(linked_nodes) == 1:
                left += linked_nodes
                continue
            cluster, next_id = NodeId(next_id), next_id + 1
            parent |= dict.fromkeys(linked_nodes, cluster)
            bodies[cluster] = join(pick(bodies, linked_nodes))
            left.append(cluster)
        nodes = left
    return Tree({nodes[0]: None, **parent}, space.clients, next_id)
