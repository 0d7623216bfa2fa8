"""The same trees in less time and memory, for many clients.

Nothing here changes a decision: with `plain_neighbors` in the place of `fast_neighbors`, which is
the only way in, every tree and every edit is the same.
"""

from sofa_fl.topology.clustering.fast.block_distances import FastSeparation
from sofa_fl.topology.clustering.fast.nearest import FastNeighbors
from sofa_fl.topology.clustering.separation import Separation
from sofa_fl.topology.geometry.space import Neighbors, Space


def fast_neighbors(space: Space) -> tuple[Neighbors, Separation]:
    """As `plain_neighbors`, in less time if there are many clients."""
    return FastNeighbors(space), FastSeparation(space)
