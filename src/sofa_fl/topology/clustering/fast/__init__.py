"""The same trees in less time and memory, for many clients.

Nothing here changes a decision: `quickest` is the only way in, and with `plain_neighbors` in its
place every tree and every edit is the same.
"""

from sofa_fl.topology.clustering.fast.block_distances import FastSeparation
from sofa_fl.topology.clustering.fast.nearest import FastNeighbors
from sofa_fl.topology.clustering.separation import Separation, plain_neighbors
from sofa_fl.topology.geometry.space import Neighbors, Space

FEW = 300  # clients: up to this number, the plain form is as fast


def fast_neighbors(space: Space) -> tuple[Neighbors, Separation]:
    """As `plain_neighbors`, in less time if there are many clients."""
    return FastNeighbors(space), FastSeparation(space)


def quickest(space: Space) -> tuple[Neighbors, Separation]:
    """The plain form for few clients, the fast one for many."""
    return (plain_neighbors if len(space.clients) <= FEW else fast_neighbors)(space)
