"""FedRep (arXiv:2102.07078): one body for all, a head of its own for every client.

A client first trains its head on the body it is given, then the body below its head; both come
out of one budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sofa_fl.federation import Federation
from sofa_fl.methods.config import FedRepConfig
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.personal import (
    PersonalMethod,
    PersonalState,
    head_of,
    train,
    two_parts,
    view_of,
    with_head,
)
from sofa_fl.methods.registry import register
from sofa_fl.sharing import SharingConfig, training_sets


@register("fedrep", "FedRep", FedRepConfig, section="fedrep")
@dataclass(frozen=True, slots=True)
class FedRep(PersonalMethod):
    config: FedRepConfig
    sharing: SharingConfig

    def round(self, state: PersonalState, fed: Federation) -> tuple[PersonalState, Notes]:
        """Train heads, then bodies; the bodies' mean goes below every client's head."""
        before = self.base.welcome(state.average, fed)
        samples = training_sets(before.tree, before.shared.pools, fed.owned, fed.cohort)
        (given,) = before.models
        kept = {client: state.personal.get(client, given) for client in fed.clients}
        for_head, for_body = two_parts(fed, self.config.head_share)
        head = head_of(fed)
        starts = {client: with_head(given, kept[client][head], fed) for client in fed.cohort}
        tasks = [
            fed.task(c, start, samples[c], batches=for_head, purpose="train the head")
            for c, start in starts.items()
        ]
        with_heads = train(fed, [replace(task, part="head") for task in tasks])
        tasks = [
            fed.task(c, outcome.params, samples[c], batches=for_body)
            for c, outcome in with_heads.items()
        ]
        with_bodies = train(fed, [replace(task, part="body") for task in tasks])
        after = self.base.cluster_update(before, with_bodies, fed)
        trained = with_heads | with_bodies
        personal = kept | {client: outcome.params for client, outcome in trained.items()}
        (body,) = after.models
        served = {c: with_head(body, model[head], fed) for c, model in personal.items()}
        return PersonalState(after, served), notes_of(trained, fed)

    def view(self, state: PersonalState) -> View:
        return view_of(state.average, self.base, {}, state.personal)
