"""The global objective L: its two regularization terms as pulls on a client, and its value.

    L = Σ_j w_j Σ_{u ∈ C_j} w_u F_u(x_u)                    (1) hierarchical model loss
      + Σ_j α_j / |C_j| Σ_{u1, u2 ∈ C_j} D(x_u1, x_u2)      (2) similarity among siblings
      + Σ_j β_j Σ_{u ∈ C_j} D(x_u, x_j)                     (3) consistency with the parent

j runs over the clusters Q, and C_j are the children of j, clients or clusters. Where the paper is
silent, chosen: D is the squared euclidean distance of the trainable weights; a pair of siblings
counts once; w_u is u's share of the samples below j, and w_j that of j's samples among all
samples; α_j and β_j are set by the level of j; F_u of a cluster is the mean held-out loss of its
model over the clients below it, weighted by samples.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from sofa_fl.engine.base import Pull
from sofa_fl.federation import Federation
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.path import Losses, Models, Path
from sofa_fl.models.flat import Vector, distances, mean
from sofa_fl.topology.tree import NodeId, Tree


def pulls_together(
    tree: Tree, path: Path, cluster: NodeId, siblings_mean: Vector, config: SofaConfig
) -> list[Pull]:
    """As `pulls_on_client`, as far as the client starts from its parent.

    One that has left its parent behind would be pulled back to what does not suit it.
    """
    pulls = pulls_on_client(tree, path, cluster, siblings_mean, config)
    return [replace(pull, weight=pull.weight * (1 - path.start)) for pull in pulls]


def pulls_on_client(
    tree: Tree, path: Path, cluster: NodeId, siblings_mean: Vector, config: SofaConfig
) -> list[Pull]:
    """Terms (2) and (3) for a client x that trains for the cluster j.

    β_j ‖x − x_j‖² belongs to every training, α_j / |C_j| Σ ‖x − x_v‖² over the siblings v to that
    for the parent. The gradient of the latter is that of α_j ‖x − m‖² − α_j / |C_j| ‖x − x_u‖²,
    where m (`siblings_mean`) is the mean of all of C_j and x_u the client's model of the round
    before: so one new model per cluster serves all its clients.
    """
    models, client = path.models, path.client
    assert client is not None
    level = tree.level[cluster]
    to_parent = Pull(models[cluster], config.beta(level))
    if cluster != tree.parent[client]:
        return [to_parent]
    alpha, size = config.alpha(level), len(tree.children[cluster])
    return [to_parent, Pull(siblings_mean, alpha), Pull(models[client], -alpha / size)]


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
        alpha, beta = config.alpha(tree.level[cluster]), config.beta(tree.level[cluster])
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
