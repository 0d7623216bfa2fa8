"""CFL (arXiv:1910.01991): FedAvg in clusters that are split when their clients pull apart.

A cluster is at rest when its clients' updates cancel out, while the clients themselves still move.
The paper knows that by two lengths, the mean update's below one (eps1) and the longest update's
above another (eps2), which mean nothing for another model or step size; here only their ratio
counts. Early on, while all clients learn the same, no ratio is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from sofa_fl.engine.base import Outcome
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import Clustered, ClusteredState, averaged, update_products
from sofa_fl.methods.config import CflConfig
from sofa_fl.methods.registry import register
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.space import Floats
from sofa_fl.topology.tree import NodeId


@register("cfl", "CFL", CflConfig, section="cfl")
@dataclass(frozen=True, slots=True)
class Cfl(Clustered):
    config: CflConfig
    sharing: SharingConfig

    def aggregate(
        self, state: ClusteredState, outcomes: Mapping[NodeId, Outcome], fed: Federation
    ) -> ClusteredState:
        """Split what is at rest; parts start from the same model, and are their clients' means."""
        for index, model in enumerate(state.models):
            clients = [client for client in outcomes if state.choice[client] == index]
            if len(clients) < 2 or len(clients) < list(state.choice.values()).count(index):
                continue  # a client without an update could not be assigned to a part
            ends = [outcomes[client].params for client in clients]
            products = update_products(model, ends, fed.engine.num_trainable)
            weights = np.array([fed.size(client) for client in clients], dtype=np.float64)
            if is_at_rest(products, weights, self.config.stationary):
                leave, similarity = bipartition(products)
                if self.config.deviation < np.sqrt((1 - similarity) / 2):
                    state = split_cluster(state, clients, leave)
        return averaged(state, outcomes, fed)


def is_at_rest(products: Floats, weights: Floats, fraction: float) -> bool:
    """If the mean update, by `weights`, is shorter than `fraction` of the longest."""
    shares = weights / weights.sum()
    square = max(0.0, float(shares @ products @ shares))  # of nothing, but for rounding
    return square < fraction**2 * float(products.diagonal().max())


def bipartition(products: Floats) -> tuple[NDArray[np.bool_], float]:
    """Who parts from the first client, and how similar clients of both parts are at most.

    The cosine of no two updates is larger across the parts than in any other bipartition: that is
    what is left of single linkage before its last step.
    """
    norms = np.sqrt(products.diagonal().clip(min=np.finfo(np.float64).tiny))
    cosines = (products / norms[:, None] / norms[None, :]).clip(-1, 1)
    parts = cut_tree(linkage(squareform(1 - cosines, checks=False), "single"), [2])[:, 0]
    leave = parts != parts[0]
    return leave, float(cosines[np.ix_(~leave, leave)].max())


def split_cluster(
    state: ClusteredState, clients: Sequence[NodeId], leave: NDArray[np.bool_]
) -> ClusteredState:
    """Give those who `leave` a model of their own, and both parts a place below their cluster."""
    tree, new = state.tree, len(state.models)
    moves: dict[NodeId, NodeId | None] = {}
    for number, is_in in enumerate((~leave, leave)):
        part = [client for client, is_member in zip(clients, is_in) if is_member]
        if len(part) > 1:
            cluster = NodeId(tree.next_id + number)
            moves |= {cluster: tree.parent[clients[0]], **dict.fromkeys(part, cluster)}
    choice = state.choice | {
        client: new for client, is_leaving in zip(clients, leave) if is_leaving
    }
    model = state.models[state.choice[clients[0]]]
    return replace(state, models=(*state.models, model), choice=choice, tree=tree.reparent(moves))
