"""FedAvg within clusters: what methods have in common that keep a model per cluster.

They differ in who belongs to which cluster, and when that changes: in `start` and `aggregate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sofa_fl.engine.base import Outcome, Pull, answered
from sofa_fl.federation import Federation
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.models.flat import Mix, Model, Vector, inner_products
from sofa_fl.present import Lazy
from sofa_fl.sharing import Shared, SharingConfig, share, training_sets
from sofa_fl.topology.space import Floats
from sofa_fl.topology.tree import NodeId, Tree, flat_tree


@dataclass(frozen=True, slots=True)
class ClusteredState:
    models: tuple[Vector, ...]
    choice: dict[NodeId, int]  # which model each client uses
    tree: Tree
    sizes: dict[NodeId, int]
    shared: Shared


class Clustered:
    """All clients in one cluster that stays; see FedAvg, which is this and nothing else."""

    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[ClusteredState, Notes]:
        """The warm-up is a first round."""
        return self.round(self.start(fed), fed)

    def start(self, fed: Federation) -> ClusteredState:
        """The untrained model, for all."""
        return begin([fed.initial()], dict.fromkeys(fed.clients, 0), fed)

    def round(self, state: ClusteredState, fed: Federation) -> tuple[ClusteredState, Notes]:
        """Every client trains its cluster's model; a cluster's model is the mean of theirs."""
        state = self.welcome(state, fed)
        outcomes = self.local_update(state, fed)
        return self.cluster_update(state, outcomes, fed), notes_of(outcomes, fed)

    def welcome(self, state: ClusteredState, fed: Federation) -> ClusteredState:
        """Those who left are forgotten, those who came are assigned a model."""
        sizes = fed.present.sizes
        if sizes is state.sizes:  # nothing has changed since the last round
            return state
        if sizes.keys() == state.choice.keys():
            return replace(state, sizes=sizes)
        stay = {client: index for client, index in state.choice.items() if client in fed.owned}
        new = [client for client in fed.clients if client not in stay]
        choice = stay | self.assign(state, new, fed)
        choice = {client: choice[client] for client in fed.clients}
        tree = clusters_tree(choice, state.tree.next_id)
        shared = replace(state.shared, pools={}).on(tree, fed.owned)
        return replace(state, choice=choice, tree=tree, sizes=sizes, shared=shared)

    def assign(
        self, state: ClusteredState, new: Sequence[NodeId], fed: Federation
    ) -> dict[NodeId, int]:
        """The model that each newcomer uses: what loses least."""
        return choose(state.models, new, fed)

    def local_update(self, state: ClusteredState, fed: Federation) -> dict[NodeId, Outcome]:
        """Train the cohort, each from its cluster's model, on its samples and the shared ones.

        Those are named that answered.
        """
        samples = training_sets(state.tree, state.shared.pools, fed.owned, fed.cohort)
        tasks = []
        for client in fed.cohort:
            model = state.models[state.choice[client]]
            tasks.append(fed.task(client, model, samples[client], pulls=self.pulls(model)))
        return answered(fed.cohort, fed.train(tasks))

    def pulls(self, model: Vector) -> list[Pull]:
        """What holds a client that trains `model`: nothing."""
        return []

    def cluster_update(
        self, state: ClusteredState, outcomes: Mapping[NodeId, Outcome], fed: Federation
    ) -> ClusteredState:
        """New models, new clusters, newly shared samples."""
        return self.share(self.aggregate(state, outcomes, fed), fed)

    def share(self, state: ClusteredState, fed: Federation) -> ClusteredState:
        """Share samples again, along the present tree."""
        seed, round = fed.seed, fed.round
        shared = share(state.tree, fed.owned, state.shared, self.sharing, seed=seed, round=round)
        return replace(state, shared=shared)

    def aggregate(
        self, state: ClusteredState, outcomes: Mapping[NodeId, Outcome], fed: Federation
    ) -> ClusteredState:
        """New models out of what the clients learned, and who uses which: here, as before."""
        return averaged(state, outcomes, fed)

    def view(self, state: ClusteredState) -> View:
        """A cluster is the mean of what its clients use, by samples; no model is copied."""
        tree, choice = state.tree, state.choice
        return View(
            tree=tree,
            models=Lazy(
                dict.fromkeys(tree.clusters or tree.clients), lambda node: used_below(node, state)
            ),
            served=Lazy(choice, lambda client: state.models[choice[client]]),
            shared=state.shared,
        )


def begin(models: Sequence[Vector], choice: dict[NodeId, int], fed: Federation) -> ClusteredState:
    """The state before any training."""
    tree = clusters_tree(choice, fed.first_id)
    return ClusteredState(tuple(models), choice, tree, fed.present.sizes, Shared())


def used_below(node: NodeId, state: ClusteredState) -> Model:
    """The mean of what the clients below a node use, by samples: of each model once."""
    if len(state.models) == 1:
        return state.models[0]
    samples: dict[int, int] = {}
    for client in state.tree.clients_of(node):
        index = state.choice[client]
        samples[index] = samples.get(index, 0) + state.sizes[client]
    return Mix(tuple(state.models[index] for index in samples), tuple(samples.values()))


def averaged(
    state: ClusteredState, outcomes: Mapping[NodeId, Outcome], fed: Federation
) -> ClusteredState:
    """Every model is now the mean of what its clients learned; one without clients stays."""
    models = []
    for index, model in enumerate(state.models):
        chosen = {c: out.params for c, out in outcomes.items() if state.choice[c] == index}
        models.append(fed.mean(chosen) if chosen else model)
    return replace(state, models=tuple(models))


def update_products(start: Vector, ends: Sequence[Vector], num_trainable: int) -> Floats:
    """The inner product of every two updates from `start` to one of `ends`.

    Out of the models' own products, in double precision: no update exists beside its model.
    """
    products = inner_products([vector[:num_trainable] for vector in (*ends, start)])
    along = products[:-1, -1]
    updates: Floats = products[:-1, :-1] - along[:, None] - along[None, :] + products[-1, -1]
    return updates


def choose(
    models: Sequence[Vector], clients: Sequence[NodeId], fed: Federation
) -> dict[NodeId, int]:
    """The model with the lowest held-out loss, for each of the clients."""
    if len(models) == 1:
        return dict.fromkeys(clients, 0)
    scores = fed.held_out([(client, model) for client in clients for model in models])
    k = len(models)
    losses = [[score.loss for score in scores[i * k : (i + 1) * k]] for i in range(len(clients))]
    return {client: min(range(k), key=row.__getitem__) for client, row in zip(clients, losses)}


def clusters_tree(choice: Mapping[NodeId, int], first: int = 0) -> Tree:
    """Root, a cluster per model that two or more clients use, clients; ids from `first` on."""
    tree = flat_tree(list(choice), first)
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
