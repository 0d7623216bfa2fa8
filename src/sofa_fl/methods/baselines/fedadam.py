"""FedAdam (arXiv:2003.00295): the clients' mean update is the gradient of Adam on the server."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import ClusteredState
from sofa_fl.methods.config import FedOptConfig
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.personal import BesideFedAvg
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import SharingConfig


@dataclass(frozen=True, slots=True)
class FedOptState:
    average: ClusteredState
    mean: Vector
    square: Vector


@register("fedadam", "FedAdam", FedOptConfig, section="fedadam")
@dataclass(frozen=True, slots=True)
class FedAdam(BesideFedAvg):
    config: FedOptConfig
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[FedOptState, Notes]:
        """The warm-up is a first round."""
        average = self.base.start(fed)
        none = torch.zeros_like(average.models[0][: fed.engine.num_trainable])
        first = torch.full_like(none, self.config.adaptivity**2)
        return self.round(FedOptState(average, none, first), fed)

    def round(self, state: FedOptState, fed: Federation) -> tuple[FedOptState, Notes]:
        """FedAvg's round, of which only the direction is taken; buffers are averaged."""
        before = self.base.welcome(state.average, fed)
        outcomes = self.base.local_update(before, fed)
        after = self.base.cluster_update(before, outcomes, fed)
        if not outcomes:
            return FedOptState(after, state.mean, state.square), notes_of(outcomes, fed)
        c, n = self.config, len(state.mean)
        (was,), (averaged,) = before.models, after.models
        update = averaged[:n] - was[:n]
        mean = c.beta1 * state.mean + (1 - c.beta1) * update
        square = self.second_moment(state.square, update.square())
        model = averaged.clone()
        model[:n] = was[:n] + c.rate * mean / (square.sqrt() + c.adaptivity)
        after = replace(after, models=(model,))
        return FedOptState(after, mean, square), notes_of(outcomes, fed)

    def second_moment(self, before: Vector, square: Vector) -> Vector:
        return self.config.beta2 * before + (1 - self.config.beta2) * square

    def view(self, state: FedOptState) -> View:
        return self.base.view(state.average)
