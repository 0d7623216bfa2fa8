"""A client's path, root to parent to itself: where it starts, what it serves, what it loses.

The path spans everything from one model for all (the root) to a model of the client's own (the
leaf).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.mixing import mixture
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
        weights: The mixing weights a of the nodes below the root.
        start: That of the client for where it starts.
    """

    clusters: tuple[NodeId, ...]
    client: NodeId | None
    models: Mapping[NodeId, Vector]
    weights: Mapping[NodeId, float] = field(default_factory=dict)
    start: float = 0.0


def parent_of(path: Path) -> Model:
    """What the client's parent stands for: m_j."""
    root, *below = path.clusters
    shares = {root: 1.0}
    for cluster in below:
        a = path.weights.get(cluster, 1.0)
        shares = {node: (1 - a) * share for node, share in shares.items()} | {cluster: a}
    return blend(path.models, shares)


def start_from_path(path: Path, config: SofaConfig) -> Model:
    """Start from what the parent stands for; or, once that is left behind, from what is served."""
    return _mixed(path, path.start)


def start_from_own(path: Path, config: SofaConfig) -> Model:
    """Go on from the client's own model x_u; a newcomer starts from the lowest cluster it found."""
    return path.models[path.clusters[-1] if path.client is None else path.client]


def serve_mixture(path: Path, config: SofaConfig) -> Model:
    """Serve what the client stands for: m_u = (1 − a_u) m_j + a_u x_u."""
    return _mixed(path, path.weights.get(path.client, 1.0) if path.client is not None else 0.0)


def serve_own(path: Path, config: SofaConfig) -> Model:
    """Serve the client's own model x_u."""
    assert path.client is not None
    return path.models[path.client]


def _mixed(path: Path, a: float) -> Model:
    if path.client is None:
        return parent_of(path)
    own = path.models[path.client]
    return mixture(parent_of(path), own, a) if path.clusters else own


def blend(models: Mapping[NodeId, Vector], weights: Mapping[NodeId, float]) -> Mix:
    """The weighted mean of the models named in `weights`; those of weight 0 are left out."""
    some = {node: weight for node, weight in weights.items() if weight}
    return Mix(tuple(models[node] for node in some), tuple(some.values()))


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
    losses = {client: dict[NodeId, float]() for client in tree.clients}
    losses |= {c: dict(found) for c, found in (known or {}).items() if c in tree.members}
    # Of most clients nothing is new, and their path need not be looked at twice.
    paths = {c: path for c in tree.clients if (path := tree.path(c)) != tuple(losses[c])}
    for client, path in paths.items():
        losses[client] = {node: losses[client][node] for node in path if node in losses[client]}
    asked = paths if clients is None else [client for client in paths if client in clients]
    pairs = [(c, node) for c in asked for node in paths[c] if node not in losses[c]]
    scores = fed.held_out([(client, models[node]) for client, node in pairs])
    for (client, node), score in zip(pairs, scores):
        losses[client][node] = score.loss
    return losses | {client: _complete(path, losses[client], fed) for client, path in paths.items()}


def _complete(
    path: Sequence[NodeId], losses: Mapping[NodeId, float], fed: Federation
) -> dict[NodeId, float]:
    """A loss for every node of a path: where there is none, that of the next node above."""
    finite = {node: loss for node, loss in losses.items() if math.isfinite(loss)}
    if len(finite) == len(path):
        return {node: finite[node] for node in path}
    last = max(finite.values(), default=fed.blind_loss)
    return {node: (last := finite.get(node, last)) for node in path}
