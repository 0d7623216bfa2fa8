"""FL+HC (arXiv:2004.11791): FedAvg, one hierarchical clustering of updates, FedAvg per cluster.

The paper cuts the dendrogram at a distance; here at a fraction of its height, which means the same
for a small model and a large one, early and late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from sofa_fl.engine.base import Outcome
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import (
    Clustered,
    ClusteredState,
    averaged,
    choose,
    clusters_tree,
    update_products,
)
from sofa_fl.methods.config import FlHcConfig
from sofa_fl.methods.registry import register
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.space import Floats
from sofa_fl.topology.tree import NodeId


@register("fl_hc", "FL+HC", FlHcConfig, section="fl_hc")
@dataclass(frozen=True, slots=True)
class FlHc(Clustered):
    config: FlHcConfig
    sharing: SharingConfig

    def aggregate(
        self, state: ClusteredState, outcomes: Mapping[NodeId, Outcome], fed: Federation
    ) -> ClusteredState:
        """Cluster the clients when it is time; every cluster is the mean of its clients."""
        if fed.round == self.config.rounds:
            (start,) = state.models
            ends = [outcome.params for outcome in outcomes.values()]
            products = update_products(start, ends, fed.engine.num_trainable)
            labels = clusters_of(products, self.config) if ends else [0]
            models = (start,) * (1 + max(labels))
            told = dict(zip(outcomes, labels))
            state = replace(state, models=models, choice=state.choice | told)
            state = averaged(state, outcomes, fed)
            # Clients without an update go to the cluster whose model has the lowest loss for them.
            missed = [client for client in fed.clients if client not in told]
            choice = state.choice | choose(state.models, missed, fed)
            return replace(state, choice=choice, tree=clusters_tree(choice, fed.first_id))
        return averaged(state, outcomes, fed)


def clusters_of(products: Floats, config: FlHcConfig) -> list[int]:
    """The cluster of every client by the updates' inner products, numbered as they first come."""
    if len(products) == 1:
        return [0]
    squares = products.diagonal()
    norms = np.sqrt(squares.clip(min=np.finfo(np.float64).tiny))
    if config.metric == "cosine":
        distances = 1 - products / norms[:, None] / norms[None, :]
    else:
        between = squares[:, None] + squares[None, :] - 2 * products
        distances = np.sqrt(between.clip(min=0)) / norms.max()
    distances[distances < 1e-6] = 0  # rounding would set equal updates apart
    merges = linkage(squareform(distances, checks=False), config.linkage)
    labels = fcluster(merges, config.threshold * merges[-1, 2], "distance").tolist()
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [numbers[label] for label in labels]
