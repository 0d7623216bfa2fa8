"""A client's path, root to parent to itself: where it starts, what pulls it, what it serves.

The path spans everything from one model for all (the root) to a model of the client's own (the
leaf).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sofa_fl.engine.base import Pull
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.mixing import mixture
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix, Model
from sofa_fl.topology.tree import NodeId, Tree

Models = Mapping[NodeId, Vector]
Losses = Mapping[NodeId, Mapping[NodeId, float]]  # held-out loss, by client and node of its path


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
    """Terms (2) and (3) of the objective for a client x that trains for the cluster j.

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
