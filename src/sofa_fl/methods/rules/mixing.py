"""How far every node goes its own way: the mixing weights a, chosen by held-out loss.

What a node stands for is its own model x, mixed with what its parent stands for:

    m_root = x_root,    m_u = (1 − a_u) m_j + a_u x_u    for a child u of j

With a_u = 0 everywhere that is one model for all, with a_u = 1 at a client it is training alone.
A mixture is judged as a mixture: its own held-out loss decides, not those of its ingredients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix, Model, as_vector
from sofa_fl.topology.geometry.space import Floats
from sofa_fl.topology.tree import NodeId, Tree

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)  # what a may be


@dataclass(frozen=True, slots=True)
class Mixing:
    """The mixing weights of a tree.

    Attributes:
        weights: a of every node but the root.
        starts: The same for where a client starts: 0 is what its parent stands for.
        parent_losses: Held-out loss of what its parent stands for, by client, steadied; and the
            parent. Of the round before, it tells how fast the parent still learns.
    """

    weights: Mapping[NodeId, float] = field(default_factory=dict)
    starts: Mapping[NodeId, float] = field(default_factory=dict)
    parent_losses: Mapping[NodeId, tuple[NodeId, float]] = field(default_factory=dict)


def own_models(tree: Tree, *_: object) -> Mixing:
    """Every node stands for its own model alone, and goes on from it: the paper's rule."""
    return Mixing(dict.fromkeys(tree.parent, 1.0), dict.fromkeys(tree.clients, 1.0))


def weigh_by_losses(
    tree: Tree,
    models: Mapping[NodeId, Vector],
    before: Mixing,
    asked: Collection[NodeId],
    config: SofaConfig,
    fed: Federation,
) -> Mixing:
    """Choose the weights that lose least, from the root down; those who are not asked keep theirs.

    A cluster goes by all its clients together. A client has few held-out samples, so its losses are
    steadied by those of its siblings: as if it had `config.steadiness` more samples, like theirs.
    """
    weights, starts = dict[NodeId, float](), dict[NodeId, float]()
    parent_losses = dict[NodeId, tuple[NodeId, float]]()
    stands_for: dict[NodeId, Vector] = {tree.root: models[tree.root]}
    for parent in tree.clusters:
        m = stands_for[parent]
        for cluster in (child for child in tree.children[parent] if child not in tree.members):
            below = [client for client in tree.clients_of(cluster) if client in asked]
            a = before.weights.get(cluster, 1.0)
            below, losses = mixture_losses(m, dict.fromkeys(below, models[cluster]), fed)
            if below:
                a = WEIGHTS[int(np.average(losses, axis=0, weights=counts(below, fed)).argmin())]
            weights[cluster] = a
            stands_for[cluster] = as_vector(mixture(m, models[cluster], a))
        children = [child for child in tree.children[parent] if child in tree.members]
        heard = [client for client in children if client in asked]
        for client in children:
            weights[client] = before.weights.get(client, 1.0)
            starts[client] = before.starts.get(client, 0.0)
            if client in before.parent_losses:
                parent_losses[client] = before.parent_losses[client]
        heard, losses = mixture_losses(m, {client: models[client] for client in heard}, fed)
        if not heard:
            continue
        for client, row in zip(heard, steadied(losses, counts(heard, fed), config.steadiness)):
            weights[client] = WEIGHTS[int(row.argmin())]
            was = before.parent_losses.get(client)
            # Of a new parent nobody knows how fast it learns: hope, unless one has left before, or
            # it is above clusters, and so of no group.
            hopes = len(children) == len(tree.children[parent]) and not before.starts.get(client)
            unknown = np.inf if hopes else 0.0
            learned = was[1] - row[0] if was is not None and was[0] == parent else unknown
            goes_on = is_left(row, learned, config.gain, fed.blind_loss)
            starts[client] = weights[client] if goes_on else 0.0
            parent_losses[client] = parent, float(row[0])
    return Mixing(weights, starts, parent_losses)


def after_moves(mixing: Mixing, before: Tree, after: Tree) -> Mixing:
    """The weights after a change of the tree: a client that moved starts from its new parent."""
    moved = {c for c in after.clients if after.parent[c] != before.parent.get(c)}
    return Mixing(
        {node: a for node, a in mixing.weights.items() if node in after.parent},
        {c: a for c, a in mixing.starts.items() if c in after.members and c not in moved},
        {c: loss for c, loss in mixing.parent_losses.items() if c in after.members},
    )


def is_left(losses: Floats, learned: float, least: float, blind_loss: float) -> bool:
    """Whether a client leaves its parent behind and goes on from what it serves.

    `losses` are those of the mixtures, the parent's first. What the client gains over its parent
    must be more than the parent has `learned` in the last round, or the client had better learn
    with its siblings; and more than the fraction `least` of what is known: blind loss − best loss.
    """
    best = float(losses.min())
    return bool(losses[0] - best > max(learned, least * (blind_loss - best), 0.0))


def mixture(parent: Model, own: Vector, a: float) -> Model:
    """(1 − a) · parent + a · own."""
    if a in (0.0, 1.0):
        return own if a else parent
    return Mix((as_vector(parent), own), (1 - a, a))


def mixture_losses(
    parent: Vector, models: Mapping[NodeId, Vector], fed: Federation
) -> tuple[list[NodeId], Floats]:
    """Held-out losses of the mixtures of each client's model and `parent`: a row for each client.

    Those that could not be scored are left out.
    """
    asks = [(c, mixture(parent, model, a)) for c, model in models.items() for a in WEIGHTS]
    scores = fed.held_out(asks, sent=True)  # the client has what they are made of
    losses = np.array([score.loss for score in scores]).reshape(len(models), len(WEIGHTS))
    scored = np.isfinite(losses).all(axis=1)
    return [client for client, is_scored in zip(models, scored) if is_scored], losses[scored]


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
