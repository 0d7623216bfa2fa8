"""Line 5 of Algorithm 6, first half: the models of clusters, and what new clusters inherit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sofa_fl.engine.base import Outcome, answered
from sofa_fl.federation import Federation
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.models.flat import Model, Vector, mean
from sofa_fl.sharing import Pools, still_owned
from sofa_fl.topology.tree import NodeId, Tree, value_at_level
from sofa_fl.topology.tree.edits import (
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


def regularized_mean(
    tree: Tree, updates: Updates, config: SofaConfig, fed: Federation
) -> dict[NodeId, Vector]:
    """As `mean_of_clients`, with terms (2) and (3) of the objective above the client level too.

    The paper does not say how a cluster u below a cluster j minimizes its terms. Chosen: its loss
    is taken as ½‖x_u − m_u‖² around the mean m_u of its clients, so that the minimum is

        x_u = (m_u + 2 α_j / |C_j| Σ m_v + 2 β_j x_j) / (1 + 2 α_j (|C_j| − 1) / |C_j| + 2 β_j)

    over the siblings v of u; from the root down, so that x_j is the parent's new model.
    """
    models = mean_of_clients(tree, updates, config, fed)
    means = dict(models)
    for cluster in tree.clusters:  # parents first
        parent = tree.parent[cluster]
        if parent is None or cluster not in means or parent not in means:
            continue
        alpha = value_at_level(config.pull_siblings, tree.level[parent])
        beta = value_at_level(config.pull_parent, tree.level[parent])
        siblings = [node for node in tree.siblings(cluster) if node in means]
        if not alpha and not beta:
            continue
        share = 2 * alpha / (1 + len(siblings))
        parts = [means[cluster], *(means[node] for node in siblings), models[parent]]
        models[cluster] = mean(parts, [1.0, *[share] * len(siblings), 2 * beta])
    return models


def trained_on_pools(
    tree: Tree, models: Models, pools: Pools, eta: float, fed: Federation
) -> dict[NodeId, Vector]:
    """The models that clusters train on their own pools, if `eta` is below 1.

    They do not train on rows that no client has any more: data change, and clients leave. The model
    of a cluster without clients does not change.
    """
    trained = {c: models[c] for c in tree.clusters if not tree.clients_of(c)}
    if eta < 1:
        pools = still_owned(pools, fed.owned)
        clusters = [cluster for cluster in tree.clusters if len(pools[cluster])]
        outcomes = fed.train(fed.task(c, models[c], pools[c]) for c in clusters)
        trained |= {c: outcome.params for c, outcome in answered(clusters, outcomes).items()}
    return trained


def mixed(taught: Models, trained: Models, eta: float) -> dict[NodeId, Vector]:
    """η · (what its clients taught a cluster) + (1 − η) · (what it learned from its pool)."""
    blended = {
        node: eta * taught[node] + (1 - eta) * model if node in taught else model
        for node, model in trained.items()
    }
    return {**taught, **blended}


def mean_of(nodes: Sequence[NodeId], tree: AnyTree, models: Models, fed: Federation) -> Vector:
    """The mean of nodes' models, weighted by the samples below them."""
    samples = [sum(fed.size(n) for n in tree.walk(node) if n in tree.members) for node in nodes]
    return mean([models[node] for node in nodes], samples)


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
    the children it takes. Nodes that stay keep their models; a client that joins brings its own,
    among `models`.
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
            case Prune() | Graft() | Join() | Leave():
                pass
        edit.apply(draft)
    return {node: model for node, model in models.items() if node in draft.parent}
