"""The rules of SOFA-FL as values: two named sets, `default` and `paper`, and any mix of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sofa_fl.engine.base import Pull
from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import Updates, mean_of_clients, regularized_mean
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.losses import Models
from sofa_fl.methods.rules.objective import pulls_on_client
from sofa_fl.methods.rules.path import (
    Path,
    serve_best,
    serve_blend,
    serve_own,
    start_from_clusters,
    start_from_own,
)
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Model
from sofa_fl.topology.clustering.dmac import DmacConfig, dmac
from sofa_fl.topology.clustering.shape import ShapeConfig, shape
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit

PathRule = Callable[[Path, SofaConfig], Model]
ClusterRule = Callable[[Tree, Updates, SofaConfig, Federation], dict[NodeId, Vector]]
PullRule = Callable[[Tree, Models, NodeId, NodeId, Vector, SofaConfig], list[Pull]]
BuildRule = Callable[[Space, DmacConfig, int], Tree]
ReshapeRule = Callable[[Tree, Space, ShapeConfig], tuple[Tree, list[Edit]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Every decision of SOFA-FL, one function each; `dataclasses.replace` exchanges one.

    Attributes:
        build: Build the tree from the clients' positions (DMAC).
        reshape: Reshape it to where the clients are now (SHAPE).
        start: The model that a client starts its local update from.
        serve: The model that a client uses.
        pulls: The objective's terms for a client that trains for a cluster.
        clusters: The models of the clusters after the local update.
    """

    build: BuildRule
    reshape: ReshapeRule
    start: PathRule
    serve: PathRule
    pulls: PullRule
    clusters: ClusterRule


START = {"clusters": start_from_clusters, "own": start_from_own}
SERVE = {"blend": serve_blend, "best": serve_best, "own": serve_own}
CLUSTERS = {"mean": mean_of_clients, "regularized": regularized_mean}


def rules_of(config: SofaConfig) -> Rules:
    """The rules that a configuration names."""
    return Rules(
        build=dmac,
        reshape=shape,
        start=START[config.start],
        serve=SERVE[config.serve],
        pulls=pulls_on_client,
        clusters=CLUSTERS[config.clusters],
    )
