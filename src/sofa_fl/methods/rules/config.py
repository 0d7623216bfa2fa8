"""What can be chosen of SOFA-FL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval

from sofa_fl.errors import ConfigError
from sofa_fl.methods.rules.positions import PositionKind
from sofa_fl.topology.clustering.config import DmacConfig, ShapeConfig
from sofa_fl.topology.geometry.space import Linkage, Metric

PullWeight = Annotated[float, Ge(0)]
RuleSet = Literal["default", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesConfig:
    """Which rules SHAPE goes by: ours (`default`) or as the paper writes them (`paper`).

    Attributes:
        graft: A node's distance to its parent: without the node itself, or with it (`paper`).
        merge: Near siblings merge unless the separation test tells them apart; or by their
            distance alone (`paper`).
        split: A wide cluster is split into parts that pass the separation test; or into the
            first parts by k-means that are coherent (`paper`).
        passes: Graft, merge, split and prune until nothing changes; or once a round (`paper`).
    """

    graft: RuleSet = "default"
    merge: RuleSet = "default"
    split: RuleSet = "default"
    passes: RuleSet = "default"


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
        start: A client starts from the blend of the `clusters` above it, or goes on from its
            `own` model.
        clusters: A cluster's model is the `mean` of its clients; or `regularized`, pulled to its
            siblings and its parent besides, as the objective has it above the client level.
        position: What tells clients apart: their `weights`, their `updates` or their `latent`
            features on a fixed batch.
        metric: How far apart two positions are.
        linkage: How far apart two clusters are: as their positions (`centroid`) or, on `average`,
            as their clients; the latter does not make large clusters look near.
        sketch: Above 256 clients a place is measured against 64 of them exactly, and the rest of
            it is sketched; this many numbers are for the sketches of all clients together. 0
            takes all exactly, in quadratic time; positions by the manhattan metric are never
            sketched.
        openness: Where a client starts, a cluster on its path counts by exp(−loss / scale), with
            the held-out loss of its model, and for scale this fraction of what a blind guess
            loses: the smaller, the less is learned from clusters that contradict the client.
        sharpness: In what a client serves, a model on its path counts by its held-out loss to the
            power of minus this; 0 blends evenly, a large number takes the best alone.
        steadiness: Held-out losses of a client are steadied by those of its siblings, as if by
            so many samples.
        serve: A client uses the `blend` of its path, the `best` model of it, or its `own`.
        alert: A client whose parent's model loses more for it than when it was last measured, by
            this fraction of what a blind guess loses, looks for another place in the tree at
            once; at a large number it waits for SHAPE.
        rules: Which rules SHAPE goes by.
        dmac: How the tree is built.
        shape: When it changes.
    """

    propagation: Literal["onepass", "cascade"] = "onepass"
    eta: Annotated[float, Interval(ge=0, le=1)] = 1.0
    pull_siblings: PullWeight | tuple[PullWeight, ...] = 1e-3
    pull_parent: PullWeight | tuple[PullWeight, ...] = 1e-3
    start: Literal["clusters", "own"] = "clusters"
    clusters: Literal["mean", "regularized"] = "mean"
    position: PositionKind = "weights"
    metric: Metric = "euclidean"
    linkage: Linkage = "average"
    sketch: Annotated[int, Ge(0)] = 1 << 24
    openness: Annotated[float, Gt(0)] = 0.2
    sharpness: Annotated[float, Ge(0)] = 4.0
    steadiness: Annotated[float, Ge(0)] = 500.0
    serve: Literal["blend", "best", "own"] = "blend"
    alert: Annotated[float, Gt(0)] = 0.2
    rules: RulesConfig = field(default_factory=RulesConfig)
    dmac: DmacConfig = field(default_factory=DmacConfig)
    shape: ShapeConfig = field(default_factory=ShapeConfig)

    def __post_init__(self) -> None:
        if self.metric == "manhattan" and self.linkage == "average":
            raise ConfigError("the manhattan metric needs sofa.linkage=centroid")

    def alpha(self, level: int) -> float:
        """α_j of a cluster j on this level."""
        return by_level(self.pull_siblings, level)

    def beta(self, level: int) -> float:
        """β_j of a cluster j on this level."""
        return by_level(self.pull_parent, level)


def by_level(values: float | tuple[float, ...], level: int) -> float:
    """The value for clusters on a level, from 1 up; the last one goes on, and () is 0."""
    if isinstance(values, tuple):
        return values[max(0, min(level, len(values)) - 1)] if values else 0.0
    return values
