"""A client's path, root to parent to itself: its models' losses, where it starts, what it serves.

The path spans everything from one model for all (the root) to a model of the client's own (the
leaf). A rule looks at the models on the path and at their held-out losses, and returns a model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix, Model
from sofa_fl.topology.tree import NodeId, Tree


@dataclass(frozen=True, slots=True)
class Path:
    """The models that know one client, coarse to fine.

    Attributes:
        clusters: The clusters from the root down to the client's parent.
        client: The client, or None for a newcomer that has no model yet.
        models: The models x of (at least) these nodes.
        losses: Held-out loss F of each model for this client, steadied.
        blind_loss: The loss of a prediction that ignores the input: the unit for losses.
    """

    clusters: tuple[NodeId, ...]
    client: NodeId | None
    models: Mapping[NodeId, Vector]
    losses: Mapping[NodeId, float]
    blind_loss: float


def start_from_clusters(path: Path, config: SofaConfig) -> Model:
    """Start from the blend of the clusters above; one that contradicts the client counts little."""
    if not path.clusters:  # a client that is alone in the tree
        assert path.client is not None
        return path.models[path.client]
    losses = {cluster: path.losses[cluster] for cluster in path.clusters}
    return blend(path.models, agreement(losses, config.openness * path.blind_loss))


def start_from_own(path: Path, config: SofaConfig) -> Model:
    """Go on from the client's own model x_u; a newcomer starts from the lowest cluster it found."""
    return path.models[path.clusters[-1] if path.client is None else path.client]


def serve_blend(path: Path, config: SofaConfig) -> Model:
    """Serve the blend of the path in which a model counts the more, the less it loses."""
    return blend(path.models, trust(path.losses, config.sharpness))


def serve_best(path: Path, config: SofaConfig) -> Model:
    """Serve the model of the path that loses least."""
    return path.models[min(path.losses, key=lambda node: path.losses[node])]


def serve_own(path: Path, config: SofaConfig) -> Model:
    """Serve the client's own model x_u."""
    assert path.client is not None
    return path.models[path.client]


def blend(models: Mapping[NodeId, Vector], weights: Mapping[NodeId, float]) -> Mix:
    """The weighted mean of the models named in `weights`."""
    return Mix(tuple(models[node] for node in weights), tuple(weights.values()))


def agreement(losses: Mapping[NodeId, float], scale: float) -> dict[NodeId, float]:
    """Weights proportional to exp(−loss / scale): what matters is the difference of two losses.

    Models that do not contradict a client count alike, however small their losses are: with few
    classes a loss of nearly nothing is easily ten times another one.
    """
    least = min(losses.values())
    counts = {node: math.exp((least - loss) / scale) for node, loss in losses.items()}
    total = sum(counts.values())
    return {node: count / total for node, count in counts.items()}


def trust(losses: Mapping[NodeId, float], sharpness: float) -> dict[NodeId, float]:
    """Weights proportional to loss ** −sharpness: what matters is the ratio of two losses."""
    # Losses below a thousandth all mean "good" and count alike. Dividing by the least one keeps
    # the powers from overflowing.
    floored = {node: max(loss, 1e-3) for node, loss in losses.items()}
    least = min(floored.values())
    counts = {node: (least / loss) ** sharpness for node, loss in floored.items()}
    total = sum(counts.values())
    return {node: count / total for node, count in counts.items()}


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
