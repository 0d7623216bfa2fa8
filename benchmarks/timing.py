"""What the benchmarks of the tree share: seconds of the processor, and a space of places."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId

T = TypeVar("T")


def timed(job: Callable[[], T]) -> tuple[float, T]:
    """Of this process: all is one thread, and others on the machine are to make no difference."""
    start = time.process_time()
    result = job()
    return time.process_time() - start, result


def space_of(places: Floats) -> Space:
    n = len(places)
    return Space(tuple(map(NodeId, range(n))), places, np.ones(n), "euclidean", "average")
