"""Worlds that are made up: clients in groups, and a world of squares that answers claims."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.edits import Edit, apply_all
from sofa_fl.topology.shape import (
    Answer,
    Blend,
    Claim,
    Proposal,
    Proposer,
    decide,
    edits_of,
    find_prunes,
)
from sofa_fl.topology.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree


@dataclass(frozen=True)
class Squares:
    """A world of squares: what a model loses for a client is the squared distance of the two.

    Attributes:
        space: Where clients are, each at the model that it learned, which is the best for it.
        unit: What a constant prediction loses.
        samples: The samples of each client; 100 if not named.
    """

    space: Space
    unit: float = 1.0
    samples: Mapping[NodeId, int] = field(default_factory=dict)

    def model(self, tree: Tree, blend: Blend) -> Floats:
        """The weighted mean of the models of a blend; a node's is the mean of its clients'."""
        nodes = self.space.locate(tree)
        rows, weights = nodes.rows(node for node, _ in blend), np.array([w for _, w in blend])
        return np.asarray(weights @ nodes.positions[rows] / weights.sum())

    def loss(self, tree: Tree, client: NodeId, blend: Blend) -> float:
        own = self.space.positions[self.space.row_of[client]]
        return float(((self.model(tree, blend) - own) ** 2).sum())

    def answers(self, tree: Tree, proposals: Sequence[Proposal]) -> dict[Claim, Answer]:
        """What every client that is asked says."""
        claims = dict.fromkeys(claim for proposal in proposals for claim in proposal.claims)
        return {
            claim: Answer(
                self.loss(tree, claim.client, claim.new),
                self.loss(tree, claim.client, claim.old),
                self.samples.get(claim.client, 100),
            )
            for claim in claims
        }

    def shape(
        self, tree: Tree, config: ShapeConfig, round: int = 0, idle: Collection[NodeId] = ()
    ) -> list[Edit]:
        """The edits of a round: proposals, answers, a decision; and the prunes that it leaves."""
        every = config.every
        proposals = Proposer(
            tree, self.space, config, due=lambda node: (node + round) % every == 0
        ).all()
        chosen = decide(tree, proposals, self.answers(tree, proposals), self.unit, config)
        edits = all_edits(tree, chosen)
        return [*edits, *find_prunes(apply_all(tree, edits), idle)]

    def at_rest(self, tree: Tree, config: ShapeConfig, most: int = 20) -> tuple[Tree, int]:
        """The tree when all have looked around and nothing changed; after how many rounds."""
        quiet = 0
        for round in range(most):
            edits = self.shape(tree, config, round)
            tree, quiet = apply_all(tree, edits), 0 if edits else quiet + 1
            if quiet == config.every:
                return tree, round + 1 - quiet
        raise AssertionError(f"still edits after {most} rounds")


def all_edits(tree: Tree, chosen: Sequence[Proposal]) -> list[Edit]:
    """The edits of proposals, operation by operation, each for the tree that the last one left."""
    edits = list[Edit]()
    for name in ("graft", "merge", "split"):
        new = edits_of(tree, chosen, name)
        tree, edits = apply_all(tree, new), [*edits, *new]
    return edits


def apart(sizes: Sequence[int], ratio: float) -> Floats:
    """Groups at a squared distance of 1 within each, and `ratio` to all others."""
    groups = np.repeat(np.eye(len(sizes)), sizes, axis=0)
    rows = np.hstack([np.eye(len(groups)), (ratio - 1) ** 0.5 * groups])
    return np.asarray(rows * 0.5**0.5)


def blobs(rng: np.random.Generator, sizes: Sequence[int], dimensions: int = 60) -> Floats:
    """Groups of noise 1 about centres that are equally far apart."""
    centres = np.repeat(np.eye(len(sizes), dimensions), sizes, axis=0)
    return np.asarray(100 * centres + rng.normal(size=(sum(sizes), dimensions)))
