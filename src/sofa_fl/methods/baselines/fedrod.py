"""FedRoD (arXiv:2107.00778): a body and a generic head for all, and a personal head on top.

Body and generic head are trained as if all classes were equally common (balanced softmax). A
client's outputs are the sum of both heads', which for linear heads is one head, the sum of both.
The paper trains all in every step; here the personal head comes after the rest, out of one budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import Prior
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import ClusteredState
from sofa_fl.methods.config import FedRodConfig
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.personal import BesideFedAvg, head_of, train, two_parts, view_of, with_head
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Vector
from sofa_fl.present import log_shares
from sofa_fl.sharing import SharingConfig, training_sets
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True)
class FedRodState:
    average: ClusteredState
    heads: dict[NodeId, Vector]  # what personal heads add to generic ones
    served: dict[NodeId, Vector]


@register("fedrod", "FedRoD", FedRodConfig, section="fedrod")
@dataclass(frozen=True, slots=True)
class FedRod(BesideFedAvg):
    config: FedRodConfig
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[FedRodState, Notes]:
        """The same untrained model for all; the warm-up is a first round."""
        return self.round(FedRodState(self.base.start(fed), {}, {}), fed)

    def round(self, state: FedRodState, fed: Federation) -> tuple[FedRodState, Notes]:
        """Train the generic model, average it, and train personal heads on the bodies."""
        before = self.base.welcome(state.average, fed)
        samples = training_sets(before.tree, before.shared.pools, fed.owned, fed.cohort)
        (given,) = before.models
        for_head, batches = two_parts(fed, self.config.head_share)
        tasks = [fed.task(c, given, samples[c], batches=batches) for c in fed.cohort]
        generic = train(fed, [replace(t, prior=class_prior(t.samples, fed)) for t in tasks])
        after = self.base.cluster_update(before, generic, fed)
        head = head_of(fed)
        none = torch.zeros_like(given[head])
        heads = {client: state.heads.get(client, none) for client in fed.clients}
        served = {client: state.served.get(client, after.models[0]) for client in fed.clients}
        for client, outcome in generic.items():
            summed = outcome.params[head] + heads[client]
            served[client] = with_head(outcome.params, summed, fed)
        tasks = [
            fed.task(c, served[c], samples[c], batches=for_head, purpose="personal head")
            for c in generic
        ]
        for client, outcome in train(fed, [replace(t, part="head") for t in tasks]).items():
            served[client] = outcome.params
            heads[client] = outcome.params[head] - generic[client].params[head]
        return FedRodState(after, heads, served), notes_of(generic, fed)

    def view(self, state: FedRodState) -> View:
        return view_of(state.average, self.base, state.served, state.served)


def class_prior(samples: Samples, fed: Federation) -> Prior | None:
    """The log of how common each class is, whether or not the run corrects for it elsewhere."""
    if fed.data.train.y.dtype.kind == "f":
        return None
    return log_shares(fed.data.class_counts(samples))
