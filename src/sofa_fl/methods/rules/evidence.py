"""What SHAPE decides by, in a federation: positions and held-out losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sofa_fl.data.base import Samples
from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import inherit, mean_of
from sofa_fl.methods.rules.path import Models
from sofa_fl.models.flat import Vector
from sofa_fl.topology.clustering.evidence import Question
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit

NUM_MORE = 100  # training samples that a client adds to the held-out ones


@dataclass(frozen=True, slots=True)
class FederationEvidence:
    """The models of a tree's nodes, and the clients that answered in this round (`space`)."""

    tree: Tree
    space: Space
    models: Models
    fed: Federation

    @property
    def round(self) -> int:
        return self.fed.round

    @property
    def blind_loss(self) -> float:
        return self.fed.blind_loss

    def samples(self, client: NodeId) -> int:
        return len(self.fed.judged_on(client))

    def losses(self, questions: Sequence[Question], *, more: bool = False) -> Floats:
        means: dict[tuple[NodeId, ...], Vector] = {}
        for _, nodes in questions:
            if nodes not in means:
                means[nodes] = (
                    self.models[nodes[0]]
                    if len(nodes) == 1
                    else mean_of(nodes, self.tree, self.models, self.fed)
                )
        asks = [(client, means[nodes]) for client, nodes in questions]
        rows = self._more_rows if more else None
        losses = np.array([score.loss for score in self.fed.held_out(asks, rows=rows)])
        return np.where(np.isfinite(losses), losses, np.inf)

    def after(self, tree: Tree, edits: Sequence[Edit]) -> FederationEvidence:
        from sofa_fl.topology.tree.edits import apply_all

        models = inherit(tree, self.models, edits, self.fed)
        return replace(self, tree=apply_all(tree, edits), models=models)

    def _more_rows(self, client: NodeId) -> Samples:
        """Held-out samples and some that the client trains on.

        A cluster's model depends little on one client's samples; where it does, that favours
        staying.
        """
        held, own = self.fed.judged_on(client), self.fed.owned[client]
        return held if held is own else np.concatenate([held, own[:NUM_MORE]])
