"""A client's path, root to parent to itself: where the client starts, and what it serves.

The path spans everything from one model for all (the root) to a model of the client's own (the
leaf). A rule looks at the models on the path and at their held-out losses, and returns a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix, Model
from sofa_fl.topology.tree import NodeId


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
