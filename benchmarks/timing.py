"""What the benchmarks of the tree share: seconds of the processor, a space, a pass of SHAPE."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.edits import Edit, apply_all
from sofa_fl.topology.shape import Answer, Blend, Proposer, decide, edits_of, find_prunes
from sofa_fl.topology.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree

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
    space, config, edits = space_of(places), ShapeConfig(every=1), list[Edit]()
    proposals = Proposer(tree, space, config).all()
    nodes, models = space.locate(tree), dict[Blend, Floats]()

    def loss(client: NodeId, blend: Blend) -> float:
        if blend not in models:
            parts = nodes.rows([node for node, _ in blend])
            weights = np.array([weight for _, weight in blend])
            models[blend] = weights @ nodes.positions[parts] / weights.sum()
        return float(np.square(places[client] - models[blend]).sum())

    answers = {
        claim: Answer(loss(claim.client, claim.new), loss(claim.client, claim.old), 100)
        for proposal in proposals
        for claim in proposal.claims
    }
    chosen = decide(tree, proposals, answers, 2 * space.scale**2, config)
    for new in (edits_of(tree, chosen, name) for name in ("graft", "merge", "split")):
        tree, edits = apply_all(tree, new), [*edits, *new]
    prunes = find_prunes(tree)
    return apply_all(tree, prunes), [*edits, *prunes]
