"""Every client alone: what federation has to beat."""

from __future__ import annotations

from dataclasses import dataclass

from sofa_fl.federation import Federation
from sofa_fl.methods.base import Notes, View, notes_of
from sofa_fl.methods.hierarchy import children_mean
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Model
from sofa_fl.sharing import Shared, SharingConfig, share, training_sets
from sofa_fl.topology.tree import NodeId, flat_tree


@dataclass(frozen=True, slots=True)
class LocalState:
    models: dict[NodeId, Vector]
    shared: Shared


@dataclass(frozen=True, slots=True)
class Local:
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[LocalState, Notes]:
        """One untrained model for all; the warm-up is a first round."""
        return self.round(LocalState(dict.fromkeys(fed.clients, fed.initial()), Shared()), fed)

    def round(self, state: LocalState, fed: Federation) -> tuple[LocalState, Notes]:
        """Everybody goes on from its own model; samples are shared as in a flat tree."""
        tree, pools = flat_tree(fed.clients), state.shared.pools
        samples = training_sets(tree, pools, fed.owned)
        tasks = [fed.task(c, state.models[c], samples[c]) for c in fed.clients]
        outcomes = dict(zip(fed.clients, fed.train(tasks)))
        seed, round = fed.seed, fed.round
        shared = share(tree, fed.owned, state.shared, self.sharing, seed=seed, round=round)
        models = {client: outcome.params for client, outcome in outcomes.items()}
        return LocalState(models, shared), notes_of(outcomes)

    def view(self, state: LocalState) -> View:
        """The root shows what averaging models that never met would give."""
        tree = flat_tree(tuple(state.models))
        root: dict[NodeId, Model] = {tree.root: children_mean(tree, state.models, tree.root)}
        return View(tree=tree, models=root | state.models, served=state.models, shared=state.shared)
