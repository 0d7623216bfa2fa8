"""Ditto (arXiv:2012.04221): FedAvg, and beside it a personal model pulled to the global one.

Both trainings come out of one budget: half of a client's batches each.
"""

from __future__ import annotations

from dataclasses import dataclass

from sofa_fl.engine.base import Pull, answered
from sofa_fl.federation import Federation
from sofa_fl.methods.config import DittoConfig
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.personal import PersonalMethod, PersonalState, view_of
from sofa_fl.methods.registry import register
from sofa_fl.sharing import SharingConfig, training_sets


@register("ditto", "Ditto", DittoConfig, section="ditto")
@dataclass(frozen=True, slots=True)
class Ditto(PersonalMethod):
    config: DittoConfig
    sharing: SharingConfig

    def round(self, state: PersonalState, fed: Federation) -> tuple[PersonalState, Notes]:
        """Train the global model, then every personal one towards it."""
        before = self.base.welcome(state.average, fed)
        samples = training_sets(before.tree, before.shared.pools, fed.owned)
        budget = fed.local.batches if fed.round else fed.warmup
        half = max(1, budget // 2)
        start = before.models[0]
        personal = {client: state.personal.get(client, start) for client in fed.clients}
        shared = [
            fed.task(c, start, samples[c], batches=half, purpose="train for all")
            for c in fed.clients
        ]
        pull = Pull(start, self.config.pull / 2)
        alone = [
            fed.task(c, personal[c], samples[c], pulls=[pull], batches=max(1, budget - half))
            for c in fed.clients
        ]
        outcomes = fed.train([*shared, *alone])
        after = self.base.cluster_update(before, answered(fed.clients, outcomes), fed)
        tuned = answered(fed.clients, outcomes[len(shared) :])
        personal |= {client: outcome.params for client, outcome in tuned.items()}
        return PersonalState(after, personal), notes_of(tuned, fed)

    def view(self, state: PersonalState) -> View:
        return view_of(state.average, self.base, state.personal, state.personal)
