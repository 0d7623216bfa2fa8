"""Dynamic multi-branch agglomerative clustering (the paper's Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge
from scipy.sparse.csgraph import connected_components

from sofa_fl.topology.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class DmacConfig:
    """How wide the tree is.

    Attributes:
        increase: Pairs nearer than the smallest distance times this are joined in one step
            (gamma): 1 gives a binary tree but for ties, more gives a wider, flatter one.
        linkage: Distance of two clusters: of their `centroid`s, as in the paper, or the
            `average` over their clients, which does not make large clusters look near.
    """

    increase: Annotated[float, Ge(1)] = 1.1
    linkage: Literal["centroid", "average"] = "centroid"


def dmac(space: Space, config: DmacConfig) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward."""
    parent: dict[NodeId, NodeId | None] = {}
    next_id = 1 + max(space.clients)
    nodes = list(space.clients)
    below = np.eye(len(nodes))  # below[i, c]: is client c in nodes[i]?
    while len(nodes) > 1:
        distances = _between(below * space.weights, space, config)
        np.fill_diagonal(distances, np.inf)
        linked = distances <= distances.min() * config.increase
        _, component = connected_components(linked, directed=False)
        merged: list[NodeId] = []
        rows: list[Floats] = []
        for label in dict.fromkeys(component):
            members = np.flatnonzero(component == label)
            node = nodes[members[0]]
            if len(members) > 1:
                node, next_id = NodeId(next_id), next_id + 1
                parent |= {nodes[member]: node for member in members}
            merged.append(node)
            rows.append(below[members].sum(axis=0))
        nodes, below = merged, np.stack(rows)
    return Tree({nodes[0]: None, **parent}, space.clients, next_id)


def _between(mass: Floats, space: Space, config: DmacConfig) -> Floats:
    """Distances between nodes, each given by the weight of every client in it."""
    share = mass / mass.sum(axis=1, keepdims=True)
    if config.linkage == "average":
        return np.asarray(share @ space.distances(space.places, space.places) @ share.T)
    places = share @ space.places
    return space.distances(places, places)
