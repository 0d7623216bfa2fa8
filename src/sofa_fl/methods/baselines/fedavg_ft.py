"""FedAvg, fine-tuned: a client serves what it made of the global model on its own samples.

The last round's local training is the fine-tuning, so it costs nothing on top of FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

from sofa_fl.federation import Federation
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.personal import BesideFedAvg, PersonalState, view_of
from sofa_fl.methods.registry import register
from sofa_fl.sharing import SharingConfig


@register("fedavg_ft", "FedAvg, tuned")
@dataclass(frozen=True, slots=True)
class FedAvgFt(BesideFedAvg):
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[PersonalState, Notes]:
        return self.round(PersonalState(self.base.start(fed), {}), fed)

    def round(self, state: PersonalState, fed: Federation) -> tuple[PersonalState, Notes]:
        before = self.base.welcome(state.average, fed)
        outcomes = self.base.local_update(before, fed)
        average = self.base.cluster_update(before, outcomes, fed)
        tuned = {client: state.personal.get(client, average.models[0]) for client in fed.clients}
        tuned |= {client: outcome.params for client, outcome in outcomes.items()}
        return PersonalState(average, tuned), notes_of(outcomes, fed)

    def view(self, state: PersonalState) -> View:
        return view_of(state.average, self.base, state.personal, state.personal)
