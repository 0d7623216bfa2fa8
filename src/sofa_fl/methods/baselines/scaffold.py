"""SCAFFOLD (arXiv:1910.06378): FedAvg whose clients correct their gradients for their drift.

A client's control is its mean gradient when it trained last (option II of the paper); to every
gradient it adds the mean of all controls less its own. So it moves as if it had all data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sofa_fl.engine.base import Outcome, constant_gradient
from sofa_fl.errors import ConfigError
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import ClusteredState
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.personal import BesideFedAvg, train
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Vector, mean
from sofa_fl.sharing import SharingConfig, training_sets
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True)
class ScaffoldState:
    average: ClusteredState
    controls: dict[NodeId, Vector]  # zero for a client without one


@register("scaffold", "SCAFFOLD")
@dataclass(frozen=True, slots=True)
class Scaffold(BesideFedAvg):
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[ScaffoldState, Notes]:
        """The warm-up is a first round, which without controls is FedAvg's."""
        if fed.local.optimizer != "sgd" or fed.local.momentum:
            raise ConfigError(
                "scaffold corrects gradients, so it needs plain SGD, but local.optimizer is "
                f"{fed.local.optimizer} with momentum {fed.local.momentum:g}; set "
                "local.optimizer=sgd, local.momentum=0 and a suitable learning rate"
            )
        return self.round(ScaffoldState(self.base.start(fed), {}), fed)

    def round(self, state: ScaffoldState, fed: Federation) -> tuple[ScaffoldState, Notes]:
        before = self.base.welcome(state.average, fed)
        samples = training_sets(before.tree, before.shared.pools, fed.owned, fed.cohort)
        (start,) = before.models
        kept = {client: c for client, c in state.controls.items() if client in fed.owned}
        everyone = mean_control(kept, fed)
        none = start.new_zeros(len(start))
        pulls = {
            client: () if everyone is None else constant_gradient(everyone, kept.get(client, none))
            for client in fed.cohort
        }
        outcomes = train(fed, [fed.task(c, start, samples[c], pulls=pulls[c]) for c in fed.cohort])
        controls = kept | new_controls(start, outcomes, kept, everyone, fed)
        after = self.base.cluster_update(before, outcomes, fed)
        return ScaffoldState(after, controls), notes_of(outcomes, fed)

    def view(self, state: ScaffoldState) -> View:
        return self.base.view(state.average)


def mean_control(controls: Mapping[NodeId, Vector], fed: Federation) -> Vector | None:
    """The mean over all clients, weighted by samples like the model; None before the first."""
    if not controls:
        return None
    share = sum(map(fed.size, controls)) / sum(map(fed.size, fed.clients))
    return mean(list(controls.values()), [fed.size(client) for client in controls]) * share


def new_controls(
    start: Vector,
    outcomes: Mapping[NodeId, Outcome],
    before: Mapping[NodeId, Vector],
    everyone: Vector | None,
    fed: Federation,
) -> dict[NodeId, Vector]:
    """The mean gradient of each client: how it moved, per step, without what corrected it."""
    controls = {}
    for client, outcome in outcomes.items():
        steps = len(outcome.losses) * fed.local.learning_rate
        control = (start - outcome.params) / steps
        if everyone is not None:
            control -= everyone
            control += before.get(client, start.new_zeros(1))
        control[fed.engine.num_trainable :] = 0
        controls[client] = control
    return controls
