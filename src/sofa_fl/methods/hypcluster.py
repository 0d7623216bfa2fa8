"""HypCluster (arXiv:2002.10619) / IFCA (arXiv:2006.04088): K models, each client picks its best.

With K = 1 this is FedAvg, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge

from sofa_fl.engine.base import Outcome
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import Clustered, ClusteredState, averaged, begin, clusters_tree
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class HypClusterConfig:
    """How many models there are.

    Attributes:
        num_clusters: Number of models (K).
    """

    num_clusters: Annotated[int, Ge(1)] = 3


@dataclass(frozen=True, slots=True)
class HypCluster(Clustered):
    config: HypClusterConfig
    sharing: SharingConfig

    def start(self, fed: Federation) -> ClusteredState:
        """K untrained models, dealt out in turn."""
        k = self.config.num_clusters
        models = [fed.initial(index) for index in range(k)]
        return begin(models, {client: client % k for client in fed.clients}, fed)

    def aggregate(
        self, state: ClusteredState, outcomes: Mapping[NodeId, Outcome], fed: Federation
    ) -> ClusteredState:
        """A model is the mean of those who chose it; then everybody chooses again."""
        state = averaged(state, outcomes, fed)
        choice = choose(state.models, fed)
        return replace(state, choice=choice, tree=clusters_tree(choice))


def choose(models: Sequence[Vector], fed: Federation) -> dict[NodeId, int]:
    """The model with the lowest held-out loss, for every client."""
    if len(models) == 1:
        return dict.fromkeys(fed.clients, 0)
    scores = fed.held_out([(client, model) for client in fed.clients for model in models])
    k = len(models)
    losses = [
        [score.loss for score in scores[i * k : (i + 1) * k]] for i in range(len(fed.clients))
    ]
    return {client: min(range(k), key=row.__getitem__) for client, row in zip(fed.clients, losses)}
