"""The settings of the baselines, a section of the configuration each; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval

from sofa_fl.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ApflConfig:
    """How personal a client's model is.

    Attributes:
        alpha: Weight of the personal model in the mixture: 0 serves the global model, and 1 trains
            every client alone. The paper uses 0.25, 0.5 and 0.75.
    """

    alpha: Annotated[float, Interval(ge=0, le=1)] = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CflConfig:
    """When a cluster is split.

    Attributes:
        stationary: A cluster is split only if its mean update is shorter than this fraction of its
            longest update (eps1 / eps2); 0 never splits.
        deviation: How far a client's update may be from that of its true group, as a fraction of
            the latter (gamma_max). The clients of different parts of a split must then have updates
            at an angle of at least twice the arcsine of this number: a right angle for 0.71. 1
            never splits.
    """

    stationary: Annotated[float, Interval(ge=0, le=1)] = 0.35
    deviation: Annotated[float, Interval(ge=0, le=1)] = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class DittoConfig:
    """How strongly personal models are pulled to the global model.

    Attributes:
        pull: Weight of half the squared distance to the global model (lambda).
    """

    pull: Annotated[float, Ge(0)] = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class FedOptConfig:
    """The optimizer of the server; the defaults are the paper's, which tunes the rate.

    Attributes:
        rate: Step size of the server (eta).
        beta1: Decay rate of the average of updates.
        beta2: Decay rate of the average of squared updates.
        adaptivity: Added to the root of the average of squares (tau), which starts as tau squared;
            with a larger value, the steps of all parameters are more alike.
    """

    rate: Annotated[float, Gt(0)] = 0.03
    beta1: Annotated[float, Interval(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Interval(ge=0, le=1)] = 0.99
    adaptivity: Annotated[float, Gt(0)] = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAlaConfig:
    """How much of the budget is spent on the mixing weights.

    Attributes:
        share: Fraction of the batches that train the mixing weights of the head; 0 leaves the
            weights at 1, which is FedAvg. The paper trains them for an epoch in each round.
    """

    share: Annotated[float, Interval(ge=0, lt=1)] = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class FedDriftConfig:
    """What counts as a change.

    Attributes:
        change: A held-out loss that rises by more than this is a drift; two models become one if
            exchanging them costs the clients of neither more than this (delta).
    """

    change: Annotated[float, Gt(0)] = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FedProxConfig:
    """How strongly a client is pulled to the global model.

    Attributes:
        pull: Weight of half the squared distance to the global model (mu).
    """

    pull: Annotated[float, Ge(0)] = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class FedRepConfig:
    """How a client's budget is divided.

    Attributes:
        head_share: Fraction of the batches that train the head; the others train the body. The
            paper uses ten epochs for the head and five for the body, or one.
    """

    head_share: Annotated[float, Interval(gt=0, lt=1)] = 2 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FedRodConfig:
    """How a client's budget is divided.

    Attributes:
        head_share: Fraction of the batches that train the personal head. The paper trains both at
            once, so it has no such number.
    """

    head_share: Annotated[float, Interval(gt=0, lt=1)] = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FlHcConfig:
    """When and how clients are clustered.

    Attributes:
        rounds: Rounds of FedAvg before clustering, counting the warm-up as the first; the updates
            of the next round are clustered.
        metric: The distance between two updates.
        linkage: The distance between two clusters; `ward` needs the euclidean metric.
        threshold: Clusters farther apart than this fraction of the last merge's distance are not
            merged; 1 gives one cluster.
    """

    rounds: Annotated[int, Ge(0)] = 5
    metric: Literal["euclidean", "cosine"] = "euclidean"
    linkage: Literal["ward", "average", "complete", "single"] = "ward"
    threshold: Annotated[float, Interval(ge=0, le=1)] = 0.5

    def __post_init__(self) -> None:
        if self.metric == "cosine" and self.linkage == "ward":
            raise ConfigError("the cosine metric needs another fl_hc.linkage, for example average")


@dataclass(frozen=True, slots=True, kw_only=True)
class HierFavgConfig:
    """The fixed tree, and how often its root is averaged.

    Attributes:
        num_edges: Number of edge servers between the clients and the cloud.
        period: Rounds from one average over all clients to the next (kappa_2); the first is in the
            warm-up. In between, clients use the models of their edge servers.
    """

    num_edges: Annotated[int, Ge(1)] = 4
    period: Annotated[int, Ge(1)] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HypClusterConfig:
    """The number of models and, for `hypcluster_restarts`, of random starts.

    Attributes:
        num_clusters: Number of models (K).
        restarts: Number of random starts that `hypcluster_restarts` tries; `hypcluster` has one.
        search_rounds: The round after which `hypcluster_restarts` keeps only the best start.
    """

    num_clusters: Annotated[int, Ge(1)] = 3
    restarts: Annotated[int, Ge(1)] = 3
    search_rounds: Annotated[int, Ge(0)] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleConfig:
    """Which level of the true groups is used.

    Attributes:
        level: For nested groups: 0 is the finest level, 1 the level above it, and so on.
    """

    level: Annotated[int, Ge(0)] = 0
