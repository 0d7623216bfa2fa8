"""HypCluster (arXiv:2002.10619) / IFCA (arXiv:2006.04088): K models, each client picks its best.

With K = 1 this is FedAvg, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from sofa_fl.engine.base import Outcome, Pull
from sofa_fl.federation import Federation
from sofa_fl.methods.base import Notes, View, notes_of
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix
from sofa_fl.sharing import Shared, SharingConfig, share, training_sets
from sofa_fl.topology.tree import NodeId, Tree, flat_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class HypClusterConfig:
    """How many models there are.

    Attributes:
        num_clusters: Number of models (K).
    """

    num_clusters: Annotated[int, Ge(1)] = 3


@dataclass(frozen=True, slots=True)
class HypClusterState:
    models: tuple[Vector, ...]
    choice: dict[NodeId, int]  # which model each client uses
    sizes: dict[NodeId, int]
    shared: Shared


@dataclass(frozen=True, slots=True)
class HypCluster:
    config: HypClusterConfig
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[HypClusterState, Notes]:
        """The warm-up is a first round."""
        return self.round(self.start(fed), fed)

    def start(self, fed: Federation) -> HypClusterState:
        """K untrained models, dealt out in turn."""
        k = self.config.num_clusters
        models = tuple(fed.initial(index) for index in range(k))
        choice = {client: client % k for client in fed.clients}
        sizes = {client: fed.size(client) for client in fed.clients}
        return HypClusterState(models, choice, sizes, Shared())

    def round(self, state: HypClusterState, fed: Federation) -> tuple[HypClusterState, Notes]:
        """Every client trains the model it chose; a model is the mean of those who chose it."""
        outcomes = self.local_update(state, fed)
        return self.cluster_update(state, outcomes, fed), notes_of(outcomes)

    def local_update(self, state: HypClusterState, fed: Federation) -> dict[NodeId, Outcome]:
        """Train every client from the model it chose, on its samples and the shared ones."""
        samples = training_sets(clusters_tree(state.choice), state.shared.pools, fed.owned)
        tasks = []
        for client in fed.clients:
            model = state.models[state.choice[client]]
            tasks.append(fed.task(client, model, samples[client], pulls=self.pulls(model)))
        return dict(zip(fed.clients, fed.train(tasks)))

    def pulls(self, model: Vector) -> list[Pull]:
        """What holds a client that trains `model`: nothing."""
        return []

    def cluster_update(
        self, state: HypClusterState, outcomes: Mapping[NodeId, Outcome], fed: Federation
    ) -> HypClusterState:
        """New models, new choices, newly shared samples."""
        models = []
        for index, model in enumerate(state.models):
            chosen = {c: out.params for c, out in outcomes.items() if state.choice[c] == index}
            models.append(fed.mean(chosen) if chosen else model)
        choice = choose(models, fed)
        tree = clusters_tree(choice)
        seed, round = fed.seed, fed.round
        shared = share(tree, fed.owned, state.shared, self.sharing, seed=seed, round=round)
        return HypClusterState(tuple(models), choice, state.sizes, shared)

    def view(self, state: HypClusterState) -> View:
        """The tree has a cluster per model in use; its root is their mean, by samples."""
        tree = clusters_tree(state.choice)
        served = {client: state.models[index] for client, index in state.choice.items()}
        models = {
            cluster: Mix(
                tuple(served[client] for client in tree.clients_of(cluster)),
                tuple(state.sizes[client] for client in tree.clients_of(cluster)),
            )
            for cluster in tree.clusters or tree.clients
        }
        return View(tree=tree, models=models, served=served, shared=state.shared)


def choose(models: Sequence[Vector], fed: Federation) -> dict[NodeId, int]:
    """The model with the lowest held-out loss, for every client."""
    if len(models) == 1:
        return dict.fromkeys(fed.clients, 0)
    scores = fed.held_out([(client, model) for client in fed.clients for model in models])
    k = len(models)
    losses = [
        [score.loss for score in scores[i * k : (i + 1) * k]] for i in range(len(fed.clients))
    ]
    return {client: min(range(k), key=row.__getitem__) for client, row in zip(fed.clients, losses)}


def clusters_tree(choice: dict[NodeId, int]) -> Tree:
    """Root, a cluster per model that two or more clients use, clients."""
    tree = flat_tree(list(choice))
    groups: dict[int, list[NodeId]] = {}
    for client, index in choice.items():
        groups.setdefault(index, []).append(client)
    if len(groups) < 2:
        return tree
    moves: dict[NodeId, NodeId | None] = {}
    for index, group in groups.items():
        if len(group) > 1:
            cluster = NodeId(tree.next_id + index)
            moves |= {cluster: tree.root, **dict.fromkeys(group, cluster)}
    return tree.reparent(moves)
