"""Line 5 of Algorithm 6, second half: compare the loss of every model on a client's path."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.models.flat import Vector
from sofa_fl.topology.tree import NodeId, Tree

Models = Mapping[NodeId, Vector]
Losses = Mapping[NodeId, Mapping[NodeId, float]]  # held-out loss, by client and node of its path


def compare_losses(
    tree: Tree,
    models: Models,
    fed: Federation,
    known: Losses | None = None,
    clients: Collection[NodeId] | None = None,
) -> dict[NodeId, dict[NodeId, float]]:
    """Measure the held-out loss of every model on each client's path, except what is `known`.

    Only `clients` (by default all) can be asked. The others keep what is known of them; for a
    model that a client has never measured, the loss of the next model above stands in.
    """
    known = known or {}
    losses = {
        client: {n: known[client][n] for n in tree.path(client) if n in known.get(client, {})}
        for client in tree.clients
    }
    clients = tree.members if clients is None else clients
    pairs = [
        (client, node)
        for client in tree.clients
        if client in clients
        for node in tree.path(client)
        if node not in losses[client]
    ]
    scores = fed.held_out([(client, models[node]) for client, node in pairs])
    for (client, node), score in zip(pairs, scores):
        losses[client][node] = score.loss
    return {client: _complete(tree.path(client), losses[client], fed) for client in tree.clients}


def _complete(
    path: Sequence[NodeId], losses: Mapping[NodeId, float], fed: Federation
) -> dict[NodeId, float]:
    """A loss for every node of a path: where there is none, that of the next node above."""
    finite = {node: loss for node, loss in losses.items() if math.isfinite(loss)}
    if len(finite) == len(path):
        return {node: finite[node] for node in path}
    last = max(finite.values(), default=fed.blind_loss)
    return {node: (last := finite.get(node, last)) for node in path}


def steady(tree: Tree, losses: Losses, fed: Federation, samples: float) -> Losses:
    """Shrink each client's losses towards the mean of its siblings, as if by `samples` more.

    A client holds out few samples, and a model that is better by chance must not win. One that
    is better by far, as for a client among others unlike it, still does.
    """
    families: dict[NodeId | None, list[NodeId]] = {}
    for client in tree.clients:
        families.setdefault(tree.parent[client], []).append(client)
    steadied: dict[NodeId, dict[NodeId, float]] = {}
    for family in families.values():
        counts = [len(fed.judged_on(client)) for client in family]
        paths = [tree.path(client) for client in family]
        rows = np.array([[losses[path[-1]][node] for node in path] for path in paths])
        mean = np.average(rows, axis=0, weights=counts)
        for path, count, row in zip(paths, counts, rows):
            shrunk = (count * row + samples * mean) / (count + samples)
            steadied[path[-1]] = dict(zip(path, shrunk.tolist()))
    return steadied
