"""FedAvg, fine-tuned: a client serves what it made of the global model on its own samples.

The last round's local training is the fine-tuning, so it costs nothing on top of FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

from sofa_fl.federation import Federation
from sofa_fl.methods.base import Notes, View, notes_of
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.clustered import ClusteredState
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True)
class TunedState:
    average: ClusteredState
    tuned: dict[NodeId, Vector]


@register("fedavg_ft", "FedAvg, tuned")
@dataclass(frozen=True, slots=True)
class FedAvgFt:
    sharing: SharingConfig

    @property
    def base(self) -> FedAvg:
        return FedAvg(self.sharing)

    def init(self, fed: Federation) -> tuple[TunedState, Notes]:
        return self.round(TunedState(self.base.start(fed), {}), fed)

    def round(self, state: TunedState, fed: Federation) -> tuple[TunedState, Notes]:
        before = self.base.welcome(state.average, fed)
        outcomes = self.base.local_update(before, fed)
        average = self.base.cluster_update(before, outcomes, fed)
        tuned = {client: state.tuned.get(client, average.models[0]) for client in fed.clients}
        tuned |= {client: outcome.params for client, outcome in outcomes.items()}
        return TunedState(average, tuned), notes_of(outcomes, fed)

    def view(self, state: TunedState) -> View:
        view = self.base.view(state.average)
        models = {**view.models, **state.tuned}
        return View(tree=view.tree, models=models, served=state.tuned, shared=view.shared)
