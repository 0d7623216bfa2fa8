"""FedAvg within the true groups, which only this method knows: an upper bound for clustering."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sofa_fl.errors import ConfigError, DataError
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import Clustered, ClusteredState, begin, clusters_tree
from sofa_fl.methods.config import OracleConfig
from sofa_fl.methods.registry import register
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId


@register("oracle", "Oracle", OracleConfig, section="oracle")
@dataclass(frozen=True, slots=True)
class Oracle(Clustered):
    config: OracleConfig
    sharing: SharingConfig

    def start(self, fed: Federation) -> ClusteredState:
        """The untrained model, for every group."""
        truth, level = fed.stage.truth, self.config.level
        if not truth:
            raise DataError(
                "the oracle needs data with known true groups; set data.partition=groups"
            )
        if level >= len(truth):
            raise ConfigError(
                f"oracle.level must be below the {len(truth)} levels of true groups, got {level}"
            )
        stages = fed.data.stages or (fed.stage,)
        num_groups = 1 + max(max(stage.truth[level]) for stage in stages)
        return begin([fed.initial()] * num_groups, self.groups(fed), fed)

    def groups(self, fed: Federation) -> dict[NodeId, int]:
        truth = fed.stage.truth[self.config.level]
        return {client: truth[client] for client in fed.clients}

    def welcome(self, state: ClusteredState, fed: Federation) -> ClusteredState:
        """Whoever came, left or changed, all are in the group that is theirs now.

        A group that is new begins with what its first client has used so far.
        """
        before = super(Oracle, self).welcome(state, fed)
        if state.choice == (choice := self.groups(fed)):
            return before
        models = list(state.models)
        for client, group in choice.items():
            if group not in state.choice.values() and group not in before.choice.values():
                models[group] = before.models[before.choice[client]]
        tree = clusters_tree(choice, fed.first_id)
        shared = replace(before.shared, pools={}).on(tree, fed.owned)  # for other clusters
        return replace(before, models=tuple(models), choice=choice, tree=tree, shared=shared)
