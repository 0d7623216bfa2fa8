"""HypCluster from several random starts, of which the best by held-out loss is kept.

During the first rounds the starts share the budget of one: with three, each trains for a third of
the batches. So the method costs as much training as any other, and pays for the choice with it.
Only held-out training samples are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

from sofa_fl.engine.base import Outcome
from sofa_fl.federation import Federation
from sofa_fl.methods.baselines.hypcluster import HypCluster
from sofa_fl.methods.clustered import ClusteredState, begin
from sofa_fl.methods.config import HypClusterConfig
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.registry import register
from sofa_fl.seeding import rng_for
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True)
class RestartsState:
    starts: tuple[ClusteredState, ...]  # the best first


@register("hypcluster_restarts", "HypCluster with restarts", HypClusterConfig, section="hypcluster")
@dataclass(frozen=True, slots=True)
class HypClusterRestarts:
    config: HypClusterConfig
    sharing: SharingConfig

    @property
    def base(self) -> HypCluster:
        return HypCluster(self.config, self.sharing)

    def init(self, fed: Federation) -> tuple[RestartsState, Notes]:
        """All starts, each with models of its own; the warm-up is a first round."""
        k = self.config.num_clusters
        budget = min(fed.warmup, fed.local.batches)  # a start must have a batch
        starts = [self.base.start(fed)]
        for start in range(1, min(self.config.restarts, budget)):
            models = [fed.initial(start * k + index) for index in range(k)]
            order = rng_for(fed.seed, start, "restart").permutation(len(fed.clients))
            dealt = {client: int(at) % k for client, at in zip(fed.clients, order)}
            starts.append(begin(models, dealt, fed))
        return self.round(RestartsState(tuple(starts)), fed)

    def round(self, state: RestartsState, fed: Federation) -> tuple[RestartsState, Notes]:
        """A round of every start that is left; after the last of the search only the best is.

        No samples are shared during the search: they would be with clusters that are given up.
        """
        last = len(state.starts) == 1
        base = self.base if last else HypCluster(self.config, replace(self.sharing, ratio=0.0))
        budget = fed.local.batches if fed.round else fed.warmup
        after: list[ClusteredState] = []
        outcomes: list[dict[NodeId, Outcome]] = []
        for start, batches in zip(state.starts, equal_shares(budget, len(state.starts))):
            before = base.welcome(start, fed)
            outcomes.append(base.local_update(before, with_budget(fed, batches)))
            after.append(base.cluster_update(before, outcomes[-1], fed))
        if not last:
            order = sorted(range(len(after)), key=[loss_of(one, fed) for one in after].__getitem__)
            after = [after[at] for at in order]
            outcomes = [outcomes[at] for at in order]
            if fed.round >= self.config.search_rounds:
                after = after[:1]
        return RestartsState(tuple(after)), notes_of(outcomes[0], fed)

    def view(self, state: RestartsState) -> View:
        """What clients are served is the best start's so far."""
        return self.base.view(state.starts[0])


def with_budget(fed: Federation, batches: int) -> Federation:
    """The same round, with this many batches per client."""
    return replace(fed, local=replace(fed.local, batches=batches), warmup=batches)


def equal_shares(batches: int, parts: int) -> list[int]:
    """`batches` in `parts` shares as equal as can be, none empty."""
    return [max(1, (batches + part) // parts) for part in range(parts)]


def loss_of(state: ClusteredState, fed: Federation) -> float:
    """The mean client's held-out loss with the model it chose, having been sent all of them."""
    asks = [(client, state.models[state.choice[client]]) for client in fed.clients]
    losses = [score.loss for score in fed.held_out(asks, sent=True) if score.num_samples]
    return fmean(losses) if losses else inf
