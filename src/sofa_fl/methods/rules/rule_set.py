"""The rules of SOFA-FL as values: two named sets, `default` and `paper`, and any mix of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from sofa_fl.engine.base import Pull
from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import Updates, mean_of_clients, regularized_mean
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.objective import pulls_on_client
from sofa_fl.methods.rules.path import (
    Models,
    Path,
    serve_best,
    serve_blend,
    serve_own,
    start_from_clusters,
    start_from_own,
)
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Model
from sofa_fl.topology.clustering.shape import TreeRules, default_tree_rules, paper_tree_rules
from sofa_fl.topology.tree import NodeId, Tree

PathRule = Callable[[Path, SofaConfig], Model]
PullRule = Callable[[Tree, Models, NodeId, NodeId, Vector, SofaConfig], list[Pull]]
ClusterRule = Callable[[Tree, Updates, SofaConfig, Federation], dict[NodeId, Vector]]


@dataclass(frozen=True, kw_only=True)
class Rules(TreeRules):
    """Every decision of SOFA-FL, one function each; `dataclasses.replace` exchanges one.

    Attributes:
        start: The model that a client starts its local update from.
        serve: The model that a client uses.
        pulls: The objective's terms for a client that trains for a cluster.
        clusters: The models of the clusters after the local update.
    """

    start: PathRule
    serve: PathRule
    pulls: PullRule
    clusters: ClusterRule


START = {"clusters": start_from_clusters, "own": start_from_own}
SERVE = {"blend": serve_blend, "best": serve_best, "own": serve_own}
CLUSTERS = {"mean": mean_of_clients, "regularized": regularized_mean}


def rules_of(config: SofaConfig) -> Rules:
    """The rules that a configuration names."""
    sets = {"default": default_tree_rules(), "paper": paper_tree_rules()}
    passes = sets[config.rules.passes]
    return Rules(
        build=sets["default"].build,  # by Algorithm 1 as written where `dmac.increase` is set
        graft=sets[config.rules.graft].graft,
        merge=sets[config.rules.merge].merge,
        split=sets[config.rules.split].split,
        prune=passes.prune,
        order=passes.order,
        until_stable=passes.until_stable,
        start=START[config.start],
        serve=SERVE[config.serve],
        pulls=pulls_on_client,
        clusters=CLUSTERS[config.clusters],
    )


def default_rules() -> Rules:
    """Our rules."""
    return rules_of(SofaConfig())


def paper_rules() -> Rules:
    """Every rule as the paper writes it; for positions with `linkage: centroid`."""
    return Rules(
        **{field.name: getattr(paper_tree_rules(), field.name) for field in fields(TreeRules)},
        start=start_from_own,
        serve=serve_own,
        pulls=pulls_on_client,
        clusters=regularized_mean,
    )
