"""FedDrift (arXiv:2206.00799): a client whose loss jumps gets a model of its own; like ones merge.

After the warm-up, too: everybody begins alone, and models merge until no two are near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from sofa_fl.data.federated_data import Samples
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import (
    Clustered,
    ClusteredState,
    averaged,
    begin,
    clusters_tree,
)
from sofa_fl.methods.config import FedDriftConfig
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Vector, mean
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.space import Floats
from sofa_fl.topology.tree import NodeId, Tree


@dataclass(frozen=True, slots=True)
class FedDriftState:
    clusters: ClusteredState
    losses: dict[NodeId, float]  # of the model each client used last


@register("feddrift", "FedDrift", FedDriftConfig, section="feddrift")
@dataclass(frozen=True, slots=True)
class FedDrift:
    config: FedDriftConfig
    sharing: SharingConfig

    @property
    def base(self) -> Clustered:
        return _Base(self.sharing)

    def init(self, fed: Federation) -> tuple[FedDriftState, Notes]:
        """Everybody alone, from one untrained model."""
        alone = {client: number for number, client in enumerate(fed.clients)}
        state = begin([fed.initial()] * len(alone), alone, fed)
        return self.trained(state, state.tree, fed)

    def round(self, state: FedDriftState, fed: Federation) -> tuple[FedDriftState, Notes]:
        clusters = self.base.welcome(state.clusters, fed)
        return self.trained(self.chosen(clusters, state.losses, fed), clusters.tree, fed)

    def chosen(
        self, state: ClusteredState, before: dict[NodeId, float], fed: Federation
    ) -> ClusteredState:
        """Everybody takes the model that loses least; whom that contradicts gets its own."""
        clients = [client for client in fed.clients if client in fed.asked]
        losses = loss_table(state.models, clients, fed)
        models, choice = list(state.models), dict(state.choice)
        for client, row in zip(clients, losses):
            choice[client] = int(row.argmin())
            if row.min() > before.get(client, np.inf) + self.config.change:
                models.append(state.models[choice[client]])
                choice[client] = len(models) - 1
        return used(replace(state, models=tuple(models), choice=choice), fed)

    def trained(
        self, state: ClusteredState, given: Tree, fed: Federation
    ) -> tuple[FedDriftState, Notes]:
        """Train and average each model; then merge those that are near.

        Clients train on what was shared with them, along the tree `given`, before they chose.
        """
        outcomes = self.base.local_update(replace(state, tree=given), fed)
        state = averaged(state, outcomes, fed)
        losses = loss_table(state.models, fed.clients, fed)
        groups = groups_within(
            exchange_costs(losses, [state.choice[c] for c in fed.clients]), self.config.change
        )
        sizes = [
            sum(fed.size(c) for c, index in state.choice.items() if index == model)
            for model in range(len(state.models))
        ]
        models = tuple(
            mean(
                [state.models[i] for i in np.flatnonzero(groups == group)],
                [sizes[i] for i in np.flatnonzero(groups == group)],
            )
            for group in range(1 + groups.max())
        )
        after = {client: int(groups[index]) for client, index in state.choice.items()}
        state = used(replace(state, models=models, choice=after), fed)
        losses = loss_table(state.models, fed.clients, fed)
        known = {c: float(row[state.choice[c]]) for c, row in zip(fed.clients, losses)}
        return FedDriftState(self.base.share(state, fed), known), notes_of(outcomes, fed)

    def view(self, state: FedDriftState) -> View:
        return self.base.view(state.clusters)


@dataclass(frozen=True, slots=True)
class _Base(Clustered):
    sharing: SharingConfig


def loss_table(models: Sequence[Vector], clients: Sequence[NodeId], fed: Federation) -> Floats:
    """The held-out loss of every model, a row per client."""
    scores = fed.held_out([(client, model) for client in clients for model in models])
    return np.array([score.loss for score in scores]).reshape(len(clients), len(models))


def exchange_costs(losses: Floats, choice: Sequence[int]) -> Floats:
    """What exchanging two models costs those who use them, the more of the two."""
    of = np.array(choice)
    costs = np.stack([losses[of == model].mean(axis=0) for model in range(losses.shape[1])])
    more = costs - costs.diagonal()[:, None]
    return np.asarray(np.maximum(more, more.T).clip(min=0))


def groups_within(exchange_costs: Floats, change: float) -> Samples:
    """The group of every model: by complete linkage, all that is no farther apart than `change`."""
    if len(exchange_costs) == 1:
        return np.zeros(1, dtype=np.int64)
    merges = linkage(squareform(exchange_costs, checks=False), "complete")
    labels = fcluster(merges, change, "distance")
    return np.unique(labels, return_inverse=True)[1]


def used(state: ClusteredState, fed: Federation) -> ClusteredState:
    """The state without models that nobody uses."""
    order = {index: number for number, index in enumerate(sorted(set(state.choice.values())))}
    choice = {client: order[index] for client, index in state.choice.items()}
    models = tuple(state.models[index] for index in order)
    tree = clusters_tree(choice, fed.first_id)
    return replace(state, models=models, choice=choice, tree=tree)
