"""FedALA (arXiv:2212.01197): a client starts where, between its own head and the global one, it
loses least.

Its body is the global one. The paper finds the weight of every entry of the head by gradient
descent; here the head is trained from where these weights were last, and what leaves the box
between the two heads is put back on its border, which are the same models. Both trainings come
out of one budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import ClusteredState
from sofa_fl.methods.config import FedAlaConfig
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.personal import BesideFedAvg, head_of, train, two_parts, view_of, with_head
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import SharingConfig, training_sets
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True)
class FedAlaState:
    average: ClusteredState
    starts: dict[NodeId, Vector]  # where clients start from, and what they are served
    weights: dict[NodeId, Vector]  # of the global head; the rest is the client's own


@register("fedala", "FedALA", FedAlaConfig, section="fedala")
@dataclass(frozen=True, slots=True)
class FedAla(BesideFedAvg):
    config: FedAlaConfig
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[FedAlaState, Notes]:
        """The same untrained model for all; the warm-up is a first round."""
        return self.round(FedAlaState(self.base.start(fed), {}, {}), fed)

    def round(self, state: FedAlaState, fed: Federation) -> tuple[FedAlaState, Notes]:
        """Train every client from its start, average, and look for the next start."""
        before = self.base.welcome(state.average, fed)
        samples = training_sets(before.tree, before.shared.pools, fed.owned, fed.cohort)
        (given,) = before.models
        starts = {client: state.starts.get(client, given) for client in fed.clients}
        batches, for_weights = (None, 0)
        if self.config.share:
            for_weights, batches = two_parts(fed, self.config.share)
        tasks = [fed.task(c, starts[c], samples[c], batches=batches) for c in fed.cohort]
        outcomes = train(fed, tasks)
        after = self.base.cluster_update(before, outcomes, fed)
        (average,) = after.models
        head = head_of(fed)
        ones = torch.ones_like(average[head])
        weights = {client: state.weights.get(client, ones) for client in fed.clients}
        for client, outcome in outcomes.items():
            between = torch.lerp(outcome.params[head], average[head], weights[client])
            starts[client] = with_head(average, between, fed)
        if for_weights:
            tasks = [
                fed.task(c, starts[c], samples[c], batches=for_weights, purpose="weights")
                for c in outcomes
            ]
            for client, tried in train(fed, [replace(t, part="head") for t in tasks]).items():
                own_head = outcomes[client].params[head]
                between = clipped(tried.params[head], own_head, average[head])
                starts[client] = with_head(average, between, fed)
                weights[client] = weights_of(between, own_head, average[head])
        return FedAlaState(after, starts, weights), notes_of(outcomes, fed)

    def view(self, state: FedAlaState) -> View:
        return view_of(state.average, self.base, state.starts, state.starts)


def clipped(head: Vector, own: Vector, average: Vector) -> Vector:
    """The nearest point of the box between two heads."""
    return torch.clamp(head, torch.minimum(own, average), torch.maximum(own, average))


def weights_of(head: Vector, own: Vector, average: Vector) -> Vector:
    """How far from `own` to `average` each entry of a head between them is."""
    way = average - own
    return torch.where(way == 0, torch.ones_like(way), (head - own) / way).clamp(0, 1)
