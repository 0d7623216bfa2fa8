"""The settings of SOFA-FL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Interval

from sofa_fl.topology.config import DmacConfig, ShapeConfig
from sofa_fl.topology.space import DistanceMetric, Linkage

PositionKind = Literal["directions", "weights", "updates", "latent"]
PullWeight = Annotated[float, Ge(0)]
RuleSet = Literal["default", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesConfig:
    """The rules of SHAPE: ours (`default`), or as the paper writes them (`paper`).

    Attributes:
        graft: `default`: a client moves to a cluster whose model has a clearly lower loss for it.
            `paper`: a node moves to the nearest parent.
        merge: `default`: siblings merge if their clients do no worse with one model of both.
            `paper`: siblings merge if they are near.
        split: `default`: a group that DMAC finds in a cluster becomes one of its own if its clients
            lose clearly less by their model. `paper`: a wide cluster is divided by k-means.
    """

    graft: RuleSet = "default"
    merge: RuleSet = "default"
    split: RuleSet = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class SofaConfig:
    """How SOFA-FL trains and serves.

    Attributes:
        propagation: `onepass`: a client trains once, and every cluster on its path is averaged
            from that. `cascade`: it trains once for every cluster on its path, from that cluster's
            model; the budget is divided among them.
        eta: Weight of the clients in a cluster's model, against the cluster's own training on
            its pool; at 1, clusters do not train.
        pull_siblings: Weight of the pull to the siblings' models (alpha): one number, or one for
            each level of the cluster above them, from 1 up; the last one holds for all above.
        pull_parent: Weight of the pull to the parent's model (beta), likewise.
        start: A client goes on from its `path`, the blend that loses least for it; or from its
            `own` model.
        clusters: A cluster's model is the `mean` of its clients; or `regularized`, pulled to its
            siblings and its parent besides, as the objective has it above the client level.
        position: The position of a client: the direction in which its weights differ from the mean
            of all clients (`directions`), its `weights`, its `updates`, or its `latent` features on
            a fixed batch.
        metric: The distance of two positions.
        linkage: The distance of two clusters: that of their positions (`centroid`), or that of
            their clients on `average`, which does not depend on the size of a cluster.
        steadiness: Held-out losses of a node are shrunk towards those of its siblings, as if it had
            this many samples more, like theirs.
        serve: A client uses the `blend` of its path that loses least for it, or its `own` model.
        evidence: What the tree and the mixing weights depend on: held-out `losses`, or `models`
            alone, for models with noise, as at private sites: clients report no losses, clusters
            are only split, and clients use their clusters' models.
        rules: The rules of SHAPE.
        dmac: How the tree is built.
        shape: When the tree changes.
    """

    propagation: Literal["onepass", "cascade"] = "onepass"
    eta: Annotated[float, Interval(ge=0, le=1)] = 1.0
    pull_siblings: PullWeight | tuple[PullWeight, ...] = 1e-3
    pull_parent: PullWeight | tuple[PullWeight, ...] = 1e-3
    start: Literal["path", "own"] = "path"
    clusters: Literal["mean", "regularized"] = "mean"
    position: PositionKind = "directions"
    metric: DistanceMetric = "euclidean"
    linkage: Linkage = "average"
    steadiness: Annotated[float, Ge(0)] = 100.0
    serve: Literal["blend", "own"] = "blend"
    evidence: Literal["losses", "models"] = "losses"
    rules: RulesConfig = field(default_factory=RulesConfig)
    dmac: DmacConfig = field(default_factory=DmacConfig)
    shape: ShapeConfig = field(default_factory=ShapeConfig)
