"""How much every node keeps of its own model: the mixing weights a, chosen by held-out loss.

What a node stands for is its own model x, mixed with what its parent stands for:

    m_root = x_root,    m_u = (1 − a_u) m_j + a_u x_u    for a child u of j

With a_u = 0 everywhere that is one model for all, with a_u = 1 at a client it is training alone.
A client serves m_u, and goes on from it. A mixture is judged as a mixture: its own held-out loss
decides, not those of its ingredients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.models.flat import Mix, Model, Vector, as_vector
from sofa_fl.topology.geometry.space import Floats
from sofa_fl.topology.tree import NodeId, Tree

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)  # what a may be


@dataclass(frozen=True, slots=True)
class Mixing:
    """The mixing weights of a tree.

    Attributes:
        weights: a of every node but the root, when its clients were last asked.
        missed: For how many rounds a client has not been asked since, if for any.
    """

    weights: Mapping[NodeId, float] = field(default_factory=dict)
    missed: Mapping[NodeId, int] = field(default_factory=dict)

    def of(self, node: NodeId) -> float:
        """How much a node keeps of its own model in this round.

        Of what sets a client apart from its parent, a is left after a round, whether the client
        trained in it or not: while it does not, its parent learns.
        """
        return self.weights.get(node, 1.0) ** (1 + self.missed.get(node, 0))


def own_models(tree: Tree, *_: object) -> Mixing:
    """Every node stands for its own model alone: the paper's rule."""
    return Mixing(dict.fromkeys(tree.parent, 1.0))


def weigh_by_losses(
    tree: Tree,
    models: Mapping[NodeId, Vector],
    losses: Mapping[NodeId, Mapping[NodeId, float]],
    before: Mixing,
    asked: Collection[NodeId],
    config: SofaConfig,
    fed: Federation,
) -> Mixing:
    """Choose the weights that lose least, from the root down; those who are not asked keep theirs.

    `losses` are those of the nodes' own models, by client and node of its path.
    A cluster goes by all its clients together. A client has few held-out samples, so its losses are
    steadied by those of its siblings: as if it had `config.steadiness` more samples, like theirs.
    """
    weights = {node: before.weights.get(node, 1.0) for node in tree.parent if node != tree.root}
    missed = {c: 1 + before.missed.get(c, 0) for c in tree.clients if c not in asked}
    stands_for: dict[NodeId, Vector] = {tree.root: models[tree.root]}
    parents = {c: losses[c][tree.root] for c in tree.clients if c in asked}  # what m_j loses
    for clusters in levels(tree):  # a whole level is asked at once: that is one exchange
        above = {cluster: stands_for[parent] for cluster, parent in clusters.items()}
        judges = [(c, k) for k in clusters for c in tree.clients_of(k) if c in asked]
        table = mixture_losses(judges, above, models, parents, losses, fed)
        for cluster in clusters:
            heard = [client for client, judged in table if judged == cluster]
            if heard:
                rows = np.array([table[client, cluster] for client in heard])
                best = int(np.average(rows, axis=0, weights=counts(heard, fed)).argmin())
                weights[cluster] = WEIGHTS[best]
                parents |= dict(zip(heard, rows[:, best].tolist()))
            m = mixture(above[cluster], models[cluster], weights[cluster])
            stands_for[cluster] = as_vector(m)
    above = {
        child: stands_for[parent]
        for parent in tree.clusters
        for child in tree.children[parent]
        if child in asked and child in tree.members
    }
    table = mixture_losses([(c, c) for c in above], above, models, parents, losses, fed)
    for parent in tree.clusters:
        siblings = [c for c in tree.children[parent] if (c, c) in table]
        if siblings:
            rows = np.array([table[c, c] for c in siblings])
            best_ones = steadied(rows, counts(siblings, fed), config.steadiness).argmin(axis=1)
            weights |= {c: WEIGHTS[best] for c, best in zip(siblings, best_ones.tolist())}
    return Mixing(weights, missed)


def after_moves(mixing: Mixing, before: Tree, after: Tree) -> Mixing:
    """The weights after a change of the tree: a client that moved stands for its new parent."""
    moved = {c for c in after.clients if after.parent[c] != before.parent.get(c)}
    return Mixing(
        {n: 0.0 if n in moved else a for n, a in mixing.weights.items() if n in after.parent},
        {c: rounds for c, rounds in mixing.missed.items() if c in after.members},
    )


def mixture(parent: Model, own: Vector, a: float) -> Model:
    """(1 − a) · parent + a · own."""
    if a in (0.0, 1.0):
        return own if a else parent
    return Mix((as_vector(parent), own), (1 - a, a))


def mixture_losses(
    judges: Sequence[tuple[NodeId, NodeId]],
    above: Mapping[NodeId, Vector],
    models: Mapping[NodeId, Vector],
    parent_losses: Mapping[NodeId, float],
    losses: Mapping[NodeId, Mapping[NodeId, float]],
    fed: Federation,
) -> dict[tuple[NodeId, NodeId], Floats]:
    """Held-out losses of the mixtures of nodes' models and what is `above` each of them.

    By judge: a client, and a node of its path. What the two lose unmixed is known. Clients that
    could not score the mixtures are left out.
    """
    between = WEIGHTS[1:-1]
    mixed = {node: [mixture(above[node], models[node], a) for a in between] for _, node in judges}
    # The client has what they are made of.
    scores = fed.held_out([(c, m) for c, node in judges for m in mixed[node]], sent=True)
    mixed_losses = np.array([score.loss for score in scores]).reshape(len(judges), len(between))
    table = {
        (client, node): np.array([parent_losses[client], *row, losses[client][node]])
        for (client, node), row in zip(judges, mixed_losses)
    }
    return {judge: row for judge, row in table.items() if np.isfinite(row).all()}


def foresee_mixtures(
    tree: Tree, models: Mapping[NodeId, Vector], asked: Collection[NodeId]
) -> list[tuple[NodeId, Model]]:
    """What `weigh_by_losses` asks about the root's children, if the tree stays: clients, mixtures.

    What the root stands for is its own model. What others do is not known before they are weighed.
    """
    top = models[tree.root]
    return [
        (client, mixed)
        for child in (tree.children[tree.root] if tree.root not in tree.members else ())
        if (heard := [c for c in tree.clients_of(child) if c in asked])
        for mixed in [mixture(top, models[child], a) for a in WEIGHTS[1:-1]]
        for client in heard
    ]


def levels(tree: Tree) -> list[dict[NodeId, NodeId]]:
    """The clusters below the root by depth, each with its parent."""
    levels: list[dict[NodeId, NodeId]] = []
    parents = [tree.root]
    while parents:
        levels.append({k: p for p in parents for k in tree.children[p] if k not in tree.members})
        parents = list(levels[-1])
    return levels[:-1]


def steadied(losses: Floats, counts: Floats, samples: float) -> Floats:
    """Shrink each client's losses towards the mean of all, as if by `samples` more.

    A client holds out few samples, and a model that is better by chance must not win. One that
    is better by far, as for a client among others unlike it, still does.
    """
    mean = np.average(losses, axis=0, weights=counts)
    return np.asarray((counts[:, None] * losses + samples * mean) / (counts[:, None] + samples))


def counts(clients: Sequence[NodeId], fed: Federation) -> Floats:
    """How many samples each client is judged on."""
    return np.array([len(fed.judged_on(client)) for client in clients], dtype=np.float64)
