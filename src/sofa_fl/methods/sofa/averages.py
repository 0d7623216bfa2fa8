"""Line 5 of Algorithm 6: the models of clusters, and what new clusters inherit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sofa_fl.engine.base import Outcome
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.models.flat import IdentityDict, Mix, Model, Vector, as_vector, mean
from sofa_fl.topology.edits import (
    AnyTree,
    Edit,
    Graft,
    Join,
    Leave,
    Merge,
    MutableTree,
    Prune,
    Split,
)
from sofa_fl.topology.tree import NodeId, Tree

Models = Mapping[NodeId, Vector]


@dataclass(frozen=True, slots=True)
class Update:
    """The result of a client's local update.

    Attributes:
        start: The model that the client started from.
        outcome: Its new model x_u, and the loss of every batch.
        taught: With `propagation: cascade`, the model that it trained for each cluster.
    """

    start: Model
    outcome: Outcome
    taught: Models = field(default_factory=dict)

    @property
    def model(self) -> Vector:
        return self.outcome.params

    def model_for(self, cluster: NodeId) -> Vector:
        return self.taught.get(cluster, self.model)


Updates = Mapping[NodeId, Update]  # by client


def mean_of_clients(
    tree: Tree, updates: Updates, config: SofaConfig, fed: Federation
) -> dict[NodeId, Vector]:
    """Every cluster is the mean of its clients' models, weighted by samples: x_j = Σ w_u x_u."""
    models = {client: update.model for client, update in updates.items()}
    if config.propagation == "onepass":
        return means_up(tree, models, fed)
    for cluster in tree.clusters:
        below = [client for client in tree.clients_of(cluster) if client in updates]
        if below:
            models[cluster] = fed.mean({c: updates[c].model_for(cluster) for c in below})
    return models


def made_by(tree: Tree, updates: Updates, fed: Federation) -> dict[NodeId, Vector]:
    """By node, the mean of what the clients below it have learned in this round."""
    models = {client: update.model for client, update in updates.items()}
    return means_up(tree, models, replace(fed, guard=replace(fed.guard, aggregate="mean")))


def mean_of(nodes: Sequence[NodeId], tree: AnyTree, models: Models, fed: Federation) -> Vector:
    """The mean of nodes' models, weighted by the samples below them, if there are any."""
    samples = [sum(fed.size(n) for n in tree.walk(node) if n in tree.members) for node in nodes]
    return mean([models[node] for node in nodes], samples if any(samples) else [1] * len(nodes))


def means_up(tree: Tree, models: Models, fed: Federation) -> dict[NodeId, Vector]:
    """The clients' models, and for every cluster the mean of its clients, weighted by samples.

    Each cluster is averaged from its children, so that every model is read once. Clients without a
    model are left out, and so are clusters without a client that has one. An aggregate other than
    the mean (`guard.aggregate`) is computed from all clients below a cluster at once.
    """
    means = {client: models[client] for client in tree.clients if client in models}
    samples = {client: fed.size(client) for client in means}
    below: dict[NodeId, list[NodeId]] = {client: [client] for client in means}
    for cluster in reversed(tree.clusters):
        children = [child for child in tree.children[cluster] if child in means]
        if not children:
            continue
        if fed.guard.aggregate == "mean":
            means[cluster] = mean([means[c] for c in children], [samples[c] for c in children])
        else:
            below[cluster] = [client for child in children for client in below[child]]
            means[cluster] = fed.mean({client: means[client] for client in below[cluster]})
        samples[cluster] = sum(samples[child] for child in children)
    return means


def inherit(
    tree: Tree, models: Models, edits: Sequence[Edit], fed: Federation
) -> dict[NodeId, Vector]:
    """The models after `edits` of `tree`, with models for new clusters.

    A merged cluster is the mean of the clusters merged; a part of a split cluster is the mean of
    the children it takes; a client that joins has that of its new parent. Nodes that stay keep
    their models.
    """
    models, draft = dict(models), MutableTree(tree)  # a `Tree` would be checked at every edit
    for edit in edits:
        match edit:
            case Merge(nodes, into):
                models[into] = mean_of(nodes, draft, models, fed)
            case Split(_, into, groups):
                models |= {
                    part: mean_of(group, draft, models, fed) for part, group in zip(into, groups)
                }
            case Join(node, onto, above):
                new = [node] if above is None else [above, node]
                models = {**dict.fromkeys(new, models[onto]), **models}
            case Prune() | Graft() | Leave():
                pass
        edit.apply(draft)
    return {node: model for node, model in models.items() if node in draft.parent}


def moved_by_updates(
    tree: Tree, before: Models, models: Models, updates: Updates, fed: Federation
) -> dict[NodeId, Vector]:
    """The clusters of which not all clients trained: they move by what the others learned.

        x_j ← x_j + Σ w_u (x_u − s_u)

    over the clients u that trained, s_u being what they started from. `models` has the mean of x_u.
    If all clients train, that is the cluster's model: what sets clients apart cancels in it. If
    only some train, it does not, and the mean would depend on who was asked. Buffers, such as
    running variances, are means in any case.
    """
    moved: dict[NodeId, Vector] = {}
    for cluster in tree.clusters:
        below = tree.clients_of(cluster)
        trained = [client for client in below if client in updates]
        if not trained or len(trained) == len(below) or cluster not in before:
            continue
        starts = mean_of_mixes([updates[c].start for c in trained], [fed.size(c) for c in trained])
        moved[cluster] = models[cluster].clone()
        n = fed.engine.num_trainable
        moved[cluster][:n] += before[cluster][:n] - starts[:n]
    return moved


def mean_of_mixes(models: Sequence[Model], weights: Sequence[float]) -> Vector:
    """The weighted mean of mixes of the same few models, each of which is read once."""
    shares = IdentityDict[float]()
    for model, weight in zip(models, weights):
        parts = model if isinstance(model, Mix) else Mix((model,), (1.0,))
        for part, share in zip(parts.models, parts.weights):
            shares[part] = shares.get(part, 0.0) + weight * share / sum(parts.weights)
    return as_vector(Mix(tuple(shares), tuple(shares.values())))
