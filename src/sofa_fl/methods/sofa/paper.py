"""The paper beside Algorithms 1 to 5: its objective, and how clusters take part in training.

    L = Σ_j w_j Σ_{u ∈ C_j} w_u F_u(x_u)                    (1) hierarchical model loss
      + Σ_j α_j / |C_j| Σ_{u1, u2 ∈ C_j} D(x_u1, x_u2)      (2) similarity among siblings
      + Σ_j β_j Σ_{u ∈ C_j} D(x_u, x_j)                     (3) consistency with the parent

j runs over the clusters Q, and C_j are the children of j, clients or clusters. Where the paper is
silent, chosen: D is the squared euclidean distance of the trainable weights; a pair of siblings
counts once; w_u is u's share of the samples below j, and w_j that of j's samples among all
samples; α_j and β_j are set by the level of j; F_u of a cluster is the mean held-out loss of its
model over the clients below it, weighted by samples.

Algorithm 1 is `topology.dmac.by_threshold`, Algorithms 2 to 5 are in `topology.paper` and
`topology.shape`. The options here are those of the preset `paper`: clusters that minimize terms (2)
and (3) above the client level, train on their pools (eta), or are trained for one by one (cascade).
"""

from __future__ import annotations

from itertools import pairwise

import torch

from sofa_fl.engine.base import answered
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.averages import Models, Updates, mean_of_clients
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.state import Losses
from sofa_fl.models.flat import Vector, distances, mean
from sofa_fl.sharing import Pools, still_owned
from sofa_fl.topology.tree import NodeId, Tree, value_at_level


def objective_value(
    tree: Tree, models: Models, losses: Losses, config: SofaConfig, fed: Federation
) -> dict[str, float]:
    """The three terms of L, by the held-out losses of every client's path; L is their sum."""
    samples = {client: fed.size(client) for client in tree.clients}
    weighted = {client: samples[client] * losses[client][client] for client in tree.clients}
    for cluster in reversed(tree.clusters):  # children first
        below = tree.clients_of(cluster)
        samples[cluster] = sum(samples[client] for client in below)
        weighted[cluster] = sum(samples[client] * losses[client][cluster] for client in below)
    everyone = samples[tree.root]
    loss = sum(weighted[node] for node in samples if node != tree.root) / everyone
    siblings = parent = 0.0
    for cluster in tree.clusters:
        children = [models[child] for child in tree.children[cluster]]
        alpha = value_at_level(config.pull_siblings, tree.level[cluster])
        beta = value_at_level(config.pull_parent, tree.level[cluster])
        if alpha and len(children) > 1:
            # The squared distances of all pairs are |C| times those to the mean.
            siblings += alpha * _scatter(children, mean(children, [1.0] * len(children)), fed)
        if beta:
            parent += beta * _scatter(children, models[cluster], fed)
    return {"loss": loss, "siblings": siblings, "parent": parent}


def _scatter(models: list[Vector], centre: Vector, fed: Federation) -> float:
    """Σ ‖x − centre‖² over the trainable weights."""
    n = fed.engine.num_trainable
    norms = distances([model[:n] for model in models], [centre[:n]] * len(models))
    return float(torch.stack(norms).double().square().sum()) if norms else 0.0


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


def divided(batches: int, parts: int) -> list[int]:
    """`batches` in `parts` shares as equal as can be, none empty."""
    ends = [batches * part // parts for part in range(parts + 1)]
    return [max(1, b - a) for a, b in pairwise(ends)]
