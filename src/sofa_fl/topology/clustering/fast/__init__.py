"""The same trees in less time and memory, for many clients.

Nothing here changes a decision: with `plain_neighbors` in the place of `quickest`, which is the
only way in, every tree and every edit is the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

from sofa_fl.topology.clustering.fast.block_distances import FastSeparation
from sofa_fl.topology.clustering.fast.nearest import FastNeighbors
from sofa_fl.topology.clustering.separation import Separation, plain_neighbors
from sofa_fl.topology.geometry.space import Neighbors, Space

FEW = 300  # clients: up to this number, plain neighbors are as fast
_controller = cache(ThreadpoolController)  # finding all libraries takes milliseconds


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit compiled libraries to one thread.

    Clustering works on blocks that take a millisecond. Two threads that wait for each other after
    each block are hardly faster on an idle machine, and many times slower on a busy one.
    """
    with _controller().limit(limits=1):
        yield


def quickest(space: Space) -> tuple[Neighbors, Separation]:
    """Plain neighbors for few clients, fast ones for many: the same tree in less time."""
    return (plain_neighbors if len(space.clients) <= FEW else fast_neighbors)(space)


def fast_neighbors(space: Space) -> tuple[Neighbors, Separation]:
    """As `plain_neighbors`, in less time if there are many clients."""
    return FastNeighbors(space), FastSeparation(space)
