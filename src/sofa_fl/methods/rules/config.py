"""What can be chosen of SOFA-FL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval

from sofa_fl.errors import ConfigError
from sofa_fl.topology.clustering.config import DmacConfig, ShapeConfig
from sofa_fl.topology.geometry.space import DistanceMetric, Linkage

PositionKind = Literal["directions", "weights", "updates", "latent"]
PullWeight = Annotated[float, Ge(0)]
RuleSet = Literal["default", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesConfig:
    """Which rules SHAPE goes by: ours (`default`) or as the paper writes them (`paper`).

    Attributes:
        graft: A client moves to a cluster whose model loses clearly less for it; or a node to the
            nearest parent (`paper`).
        merge: Siblings merge if their clients do not lose by an exchange of models, unless a split
            made them; or if they are near (`paper`).
        split: Children that DMAC is certain of become a part, and others that it sees as one if
            they gain by a model of their own; or a wide cluster is divided by k-means (`paper`).
    """

    graft: RuleSet = "default"
    merge: RuleSet = "default"
    split: RuleSet = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class SofaConfig:
    """How SOFA-FL trains and serves.

    Attributes:
        propagation: `onepass`: a client trains once, from the blend of its path, and every
            cluster on its path learns from that. `cascade`: it trains once for every cluster on
            its path, from that cluster's model; the budget is divided among them.
        eta: Weight of the clients in a cluster's model, against the cluster's own training on
            its pool; at 1 clusters do not train.
        pull_siblings: Weight of the pull to the siblings' models (alpha): one number, or one for
            each level of the cluster above them (from 1 up; the last one goes on).
        pull_parent: Weight of the pull to the parent's model (beta), likewise.
        start: A client goes on from its `path`, the blend that loses least for it; or from its
            `own` model.
        clusters: A cluster's model is the `mean` of its clients; or `regularized`, pulled to its
            siblings and its parent besides, as the objective has it above the client level.
        position: What tells clients apart: the `directions` in which their weights differ from the
            mean of all, their `weights`, their `updates` or their `latent` features on a fixed
            batch.
        metric: How far apart two positions are.
        linkage: How far apart two clusters are: as their positions (`centroid`) or, on `average`,
            as their clients; the latter does not make large clusters look near.
        sketch: Above 256 clients a place is measured against 64 of them exactly, and the rest of
            it is sketched; this many numbers are for the sketches of all clients together. 0
            takes all exactly, in quadratic time; positions by the manhattan metric are never
            sketched.
        steadiness: Held-out losses of a client are steadied by those of its siblings, as if it had
            this many samples more.
        serve: A client uses the `blend` of its path that loses least for it, or its `own` model.
        alert: A client whose parent's model loses more for it than when it was last measured, by
            this fraction of what a blind guess loses, looks for another place in the tree at
            once; at a large number it waits for SHAPE.
        evidence: What the tree and the mixing weights go by: held-out `losses`; or `models` alone,
            where these are noised, as at private sites: clients are asked for no losses, clusters
            are only divided, and clients use their clusters' models.
        rules: Which rules SHAPE goes by.
        dmac: How the tree is built.
        shape: When it changes.
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
    sketch: Annotated[int, Ge(0)] = 1 << 24
    steadiness: Annotated[float, Ge(0)] = 100.0
    serve: Literal["blend", "own"] = "blend"
    alert: Annotated[float, Gt(0)] = 0.2
    evidence: Literal["losses", "models"] = "losses"
    rules: RulesConfig = field(default_factory=RulesConfig)
    dmac: DmacConfig = field(default_factory=DmacConfig)
    shape: ShapeConfig = field(default_factory=ShapeConfig)

    def __post_init__(self) -> None:
        if self.metric == "manhattan" and self.linkage == "average":
            raise ConfigError("the manhattan metric needs sofa.linkage=centroid")
