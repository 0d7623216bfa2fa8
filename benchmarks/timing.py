"""What the benchmarks of the tree share: seconds of the processor, a space, a pass of SHAPE."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.clustering.evidence import DistanceEvidence
from sofa_fl.topology.clustering.shape import shape
from sofa_fl.topology.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.edits import Edit

T = TypeVar("T")


def timed(job: Callable[[], T]) -> tuple[float, T]:
    """Of this process: all is one thread, and others on the machine are to make no difference."""
    start = time.process_time()
    result = job()
    return time.process_time() - start, result


def space_of(places: Floats) -> Space:
    n = len(places)
    return Space(tuple(map(NodeId, range(n))), places, np.ones(n), "euclidean", "average")


def shape_at(tree: Tree, places: Floats) -> tuple[Tree, list[Edit]]:
    """A pass on places that are new to it, where all look around; losses are squared distances.

    So what is timed is the search for edits, and the questions cost next to nothing: in a run
    each is an evaluation on a client.
    """
    space = space_of(places)
    evidence = DistanceEvidence(tree, space, blind_loss=2 * space.scale**2)
    return shape(tree, evidence, ShapeConfig(every=1))[:2]
