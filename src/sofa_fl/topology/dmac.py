"""Dynamic multi-branch agglomerative clustering (the paper's Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from sofa_fl.topology.nearest import Nearest
from sofa_fl.topology.space import Space
from sofa_fl.topology.threads import one_thread
from sofa_fl.topology.tree import NodeId, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class DmacConfig:
    """How wide the tree is.

    Attributes:
        increase: Pairs nearer than the smallest distance times this are joined in one step
            (gamma): 1 gives a binary tree but for ties, more gives a wider, flatter one.
    """

    increase: Annotated[float, Ge(1)] = 1.05


@one_thread()
def dmac(space: Space, config: DmacConfig) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward."""
    nodes = Nearest(space)
    num, first = len(space.clients), 1 + max(space.clients)
    ids = [*space.clients, *(NodeId(first + k) for k in range(num - 1))]  # by row of `nodes`
    parent: dict[NodeId, NodeId | None] = {}
    while nodes.num_alive > 1:
        groups = nodes.components(config.increase)
        for row, group in zip(nodes.join(groups), groups):
            parent |= {ids[member]: ids[row] for member in group}
    return Tree({ids[nodes.size - 1]: None, **parent}, space.clients, first + nodes.size - num)
