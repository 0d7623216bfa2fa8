"""HierFAVG (arXiv:1905.06641): edges average their clients, and now and then the cloud the edges.

Which client is on which edge is given and stays. Clients are dealt out in turn, so that edges know
nothing of the data: in blocks they would be the very groups of `data.partition=groups`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sofa_fl.engine.base import Outcome
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import Clustered, ClusteredState, averaged, begin
from sofa_fl.methods.config import HierFavgConfig
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import mean
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId


@register("hierfavg", "HierFAVG", HierFavgConfig, section="hierfavg")
@dataclass(frozen=True, slots=True)
class HierFavg(Clustered):
    config: HierFavgConfig
    sharing: SharingConfig

    def start(self, fed: Federation) -> ClusteredState:
        """The untrained model on every edge that has a client."""
        num_edges = min(self.config.num_edges, len(fed.clients))
        choice = {client: client % num_edges for client in fed.clients}
        return begin([fed.initial()] * num_edges, choice, fed)

    def assign(
        self, state: ClusteredState, new: Sequence[NodeId], fed: Federation
    ) -> dict[NodeId, int]:
        """In turn, as before."""
        return {client: client % len(state.models) for client in new}

    def aggregate(
        self, state: ClusteredState, outcomes: Mapping[NodeId, Outcome], fed: Federation
    ) -> ClusteredState:
        """Edges are the means of their clients; when it is time, all are the mean of the edges."""
        state = averaged(state, outcomes, fed)
        if fed.round % self.config.period or len(state.models) == 1:
            return state
        samples = [0] * len(state.models)
        for client, edge in state.choice.items():
            samples[edge] += state.sizes[client]
        cloud = mean(state.models, samples)
        return replace(state, models=(cloud,) * len(state.models))
