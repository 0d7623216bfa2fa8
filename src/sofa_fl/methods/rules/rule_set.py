"""The rules of SOFA-FL as values: two named sets, `default` and `paper`, and any mix of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields

from sofa_fl.engine.base import Pull
from sofa_fl.federation import Asks, Federation
from sofa_fl.methods.rules.clusters import Models, Updates, mean_of_clients, regularized_mean
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.local_update import (
    Path,
    mix_path,
    pulls_on_client,
    serve_own,
    start_from_own,
)
from sofa_fl.methods.rules.losses import Losses
from sofa_fl.methods.rules.mixing import (
    Mixing,
    foresee_mixtures,
    own_models,
    weigh_by_losses,
)
from sofa_fl.methods.rules.positions import embed
from sofa_fl.models.flat import Model, Vector
from sofa_fl.topology.clustering.config import Operation
from sofa_fl.topology.clustering.shape import TreeRules, default_tree_rules, paper_tree_rules
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree

EmbedRule = Callable[[Updates, SofaConfig, Federation], Space]
PathRule = Callable[[Path, SofaConfig], Model]
PullRule = Callable[[Tree, Path, NodeId, Vector, SofaConfig], list[Pull]]
WeighRule = Callable[
    [Tree, Models, Losses, Mixing, Collection[NodeId], SofaConfig, Federation], Mixing
]
MixturesRule = Callable[[Tree, Models, Collection[NodeId]], Asks]
ClusterRule = Callable[[Tree, Updates, SofaConfig, Federation], dict[NodeId, Vector]]


def no_mixtures(*_: object) -> Asks:
    """Nothing is known before."""
    return []


@dataclass(frozen=True, kw_only=True)
class Rules(TreeRules):
    """Every decision of SOFA-FL, one function each; `dataclasses.replace` exchanges one.

    Attributes:
        embed: Returns the positions of the clients that contributed.
        start: Returns the model that a client starts its local update from.
        serve: Returns the model that a client uses.
        pulls: Returns the objective's terms for a client that trains for a cluster.
        clusters: Returns the models of the clusters after the local update.
        weigh: Returns the mixing weights of all nodes, for `start` and `serve`.
        weighed: Returns what `weigh` will ask of clients, as far as it is known before SHAPE.
    """

    embed: EmbedRule
    start: PathRule
    serve: PathRule
    pulls: PullRule
    clusters: ClusterRule
    weigh: WeighRule
    weighed: MixturesRule = no_mixtures


START = {"path": mix_path, "own": start_from_own}
SERVE = {"blend": mix_path, "own": serve_own}
CLUSTERS = {"mean": mean_of_clients, "regularized": regularized_mean}


def rules_of(config: SofaConfig) -> Rules:
    """The rules that a configuration names."""
    sets = {"default": default_tree_rules(), "paper": paper_tree_rules()}
    chosen: dict[Operation, TreeRules] = {
        "graft": sets[config.rules.graft],
        "merge": sets[config.rules.merge],
        "split": sets[config.rules.split],
    }
    alone = config.start == config.serve == "own"  # then there is nothing to weigh
    return Rules(
        build=sets["default"].build,  # by Algorithm 1 as written where `dmac.increase` is set
        graft=chosen["graft"].graft,
        merge=chosen["merge"].merge,
        split=chosen["split"].split,
        foresight={
            name: rules.foresight[name] for name, rules in chosen.items() if name in rules.foresight
        },
        preparation={
            name: rules.preparation[name]
            for name, rules in chosen.items()
            if name in rules.preparation
        },
        embed=embed,
        start=START[config.start],
        serve=SERVE[config.serve],
        pulls=pulls_on_client,
        clusters=CLUSTERS[config.clusters],
        weigh=own_models if alone else weigh_by_losses,
        weighed=no_mixtures if alone else foresee_mixtures,
    )


def default_rules() -> Rules:
    """Our rules."""
    return rules_of(SofaConfig())


def paper_rules() -> Rules:
    """Every rule as the paper writes it; they need positions with `linkage: centroid`."""
    return Rules(
        **{field.name: getattr(paper_tree_rules(), field.name) for field in fields(TreeRules)},
        embed=embed,
        start=start_from_own,
        serve=serve_own,
        pulls=pulls_on_client,
        clusters=regularized_mean,
        weigh=own_models,
    )
