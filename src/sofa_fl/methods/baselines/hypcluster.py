"""HypCluster (arXiv:2002.10619) / IFCA (arXiv:2006.04088): K models, each client picks its best.

With K = 1 this is FedAvg, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sofa_fl.engine.base import Outcome
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import (
    Clustered,
    ClusteredState,
    averaged,
    begin,
    choose,
    clusters_tree,
)
from sofa_fl.methods.config import HypClusterConfig
from sofa_fl.methods.registry import register
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId


@register("hypcluster", "HypCluster", HypClusterConfig, section="hypcluster")
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
        """A model is the mean of those who chose it; then everybody heard chooses again."""
        state = averaged(state, outcomes, fed)
        choice = state.choice | choose(state.models, list(outcomes), fed)
        return replace(state, choice=choice, tree=clusters_tree(choice, fed.first_id))
