"""What SHAPE decides by, in a federation: positions and held-out losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from sofa_fl.data.federated_data import Samples
from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import inherit, mean_of
from sofa_fl.methods.rules.path import Models
from sofa_fl.models.flat import Vector
from sofa_fl.topology.clustering.evidence import Question
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, apply_all

FEW = 100  # held-out samples
LARGEST = 1e30  # the loss of what could not be scored


@dataclass(frozen=True, slots=True)
class FederationEvidence:
    """The models of a tree's nodes, and the clients that answered in this round (`space`).

    Attributes:
        known: What was asked before, by question and whether training samples counted.
    """

    tree: Tree
    space: Space
    models: Models
    fed: Federation
    known: dict[tuple[Question, bool], float] = field(default_factory=dict)

    @property
    def round(self) -> int:
        return self.fed.round

    @property
    def blind_loss(self) -> float:
        return self.fed.blind_loss

    def samples(self, client: NodeId) -> int:
        return len(self.fed.judged_on(client))

    def losses(self, questions: Sequence[Question], *, more: bool = False) -> Floats:
        new = [q for q in dict.fromkeys(questions) if (q, more) not in self.known]
        if new:
            self.known.update(zip(((q, more) for q in new), self._asked(new, more).tolist()))
        return np.array([self.known[q, more] for q in questions], dtype=np.float64)

    def _asked(self, questions: Sequence[Question], more: bool) -> Floats:
        means: dict[tuple[NodeId, ...], Vector] = {}
        for _, nodes in questions:
            if nodes not in means:
                means[nodes] = (
                    self.models[nodes[0]]
                    if len(nodes) == 1
                    else mean_of(nodes, self.tree, self.models, self.fed)
                )
        asks = [(client, means[nodes]) for client, nodes in questions]
        losses = self._measured(asks, self.fed.judged_on)
        few = [at for at, (client, _) in enumerate(asks) if more and self._has_few(client)]
        if few:
            trained = self._measured([asks[at] for at in few], self.fed.owned.__getitem__)
            for at, loss in zip(few, trained):
                client = asks[at][0]
                held, own = self.samples(client), len(self.fed.owned[client])
                losses[at] = (held * losses[at] + own * loss) / (held + own)
        return losses

    def _measured(
        self, asks: Sequence[tuple[NodeId, Vector]], rows: Callable[[NodeId], Samples]
    ) -> Floats:
        losses = np.array([score.loss for score in self.fed.held_out(asks, rows=rows)])
        return np.where(np.isfinite(losses), losses, LARGEST)

    def _has_few(self, client: NodeId) -> bool:
        """Whether a client holds out too few samples to judge the model of a cluster alone.

        Then those that it trains on count, too: a cluster's model depends little on one client's
        samples, and where it does, that favours staying.
        """
        return (
            self.samples(client) < FEW and self.fed.judged_on(client) is not self.fed.owned[client]
        )

    def after(self, tree: Tree, edits: Sequence[Edit]) -> Self:
        models, edited = inherit(tree, self.models, edits, self.fed), apply_all(tree, edits)
        same = {  # a node that stays keeps its model, but means are of what is below nodes
            (question, more): loss
            for (question, more), loss in self.known.items()
            if len(question[1]) == 1 and question[1][0] in edited.parent
        }
        return replace(self, tree=edited, models=models, known=same)
