"""Clients on a plane that have moved such that SHAPE makes one of its four edits.

A model loses for a client the squared distance between the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.edits import Edit, apply_all
from sofa_fl.topology.shape import Answer, Blend, Proposer, decide, edits_of, find_prunes
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree

Place = tuple[float, float]
Positions = tuple[Place, ...]
LEFT: Positions = ((0.0, 0.0), (1.0, 0.2), (0.4, 1.0))
RIGHT: Positions = ((5.0, 0.2), (6.0, 0.0), (5.5, 1.0))
BLIND_LOSS = 20.0  # about that of the mean of all
SAMPLES = 100  # of every client
TOP: Positions = ((2.6, 4.6), (3.5, 4.8), (3.0, 3.9))
NEAR: Positions = ((1.4, 3.5), (2.3, 3.7), (1.8, 2.8))


@dataclass(frozen=True, slots=True)
class Example:
    """Clients in clusters, where they were when the tree was made, and where they are now."""

    title: str
    clusters: tuple[tuple[int, ...], ...]
    before: Positions
    now: Positions

    @property
    def tree(self) -> Tree:
        num = sum(map(len, self.clusters))
        root = NodeId(num + len(self.clusters))
        parent: dict[NodeId, NodeId | None] = {root: None}
        for i, members in enumerate(self.clusters):
            parent[NodeId(num + i)] = root
            parent |= {NodeId(client): NodeId(num + i) for client in members}
        return Tree(parent, tuple(map(NodeId, range(num))), root + 1)

    def shaped(self, positions: Positions) -> tuple[Tree, list[Edit]]:
        """The tree after SHAPE, the clients being there, and what was done to it."""
        tree = self.tree
        at = np.array(positions)
        space = Space(tree.clients, at, np.ones(len(at)), linkage="average")
        config, nodes, edits = ShapeConfig(every=1), space.locate(tree), list[Edit]()
        proposals = Proposer(tree, space, config).all()

        def loss(client: NodeId, blend: Blend) -> float:
            parts = nodes.rows([node for node, _ in blend])
            weights = np.array([weight for _, weight in blend])
            model = weights @ nodes.positions[parts] / weights.sum()
            return float(np.square(at[client] - model).sum())

        answers = {
            claim: Answer(loss(claim.client, claim.new), loss(claim.client, claim.old), SAMPLES)
            for proposal in proposals
            for claim in proposal.claims
        }
        chosen = decide(tree, proposals, answers, BLIND_LOSS, config)
        for new in (edits_of(tree, chosen, name) for name in ("graft", "merge", "split")):
            tree, edits = apply_all(tree, new), [*edits, *new]
        prunes = find_prunes(tree)
        return apply_all(tree, prunes), [*edits, *prunes]


EXAMPLES = (
    Example(
        "Graft", ((0, 1, 2), (3, 4, 5)), LEFT + RIGHT, (*LEFT[:2], (4.4, 1.2), *RIGHT)
    ),
    Example(
        "Merge",
        ((0, 1, 2), (3, 4, 5), (6, 7, 8)),
        LEFT + RIGHT + NEAR,
        (*LEFT, (0.7, -0.4), (1.1, 0.8), (-0.2, 0.6), *NEAR),
    ),
    Example(
        "Split",
        ((0, 1, 2, 3), (4, 5, 6)),
        ((0.0, 2.4), (0.8, 2.6), (0.1, 3.3), (0.9, 3.4), (4.3, 2.4), (5.1, 2.7), (4.6, 3.4)),
        ((0.6, 0.0), (1.4, 0.2), (0.5, 5.6), (1.3, 5.8), (4.3, 2.4), (5.1, 2.7), (4.6, 3.4)),
    ),
    Example(
        "Prune",
        ((0, 1, 2), (3, 4), (5, 6, 7)),
        (*LEFT, (5.0, 0.0), (5.8, 0.5), *TOP),
        (*LEFT, (1.4, 0.9), (5.8, 0.5), *TOP),
    ),
)  # fmt: skip
