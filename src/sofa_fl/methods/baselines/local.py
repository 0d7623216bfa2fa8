"""Every client alone: what federation has to beat."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sofa_fl.engine.base import answered
from sofa_fl.federation import Federation
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.registry import register
from sofa_fl.methods.sofa.mixing import blend
from sofa_fl.models.flat import Model, Vector
from sofa_fl.sharing import Shared, SharingConfig, share, training_sets
from sofa_fl.topology.tree import NodeId, Tree, flat_tree


@dataclass(frozen=True, slots=True)
class LocalState:
    models: dict[NodeId, Vector]
    tree: Tree
    shared: Shared


@register("local", "Local")
@dataclass(frozen=True, slots=True)
class Local:
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[LocalState, Notes]:
        """One untrained model for all; the warm-up is a first round."""
        tree, models = (
            flat_tree(fed.clients, fed.first_id),
            dict.fromkeys(fed.clients, fed.initial()),
        )
        return self.round(LocalState(models, tree, Shared()), fed)

    def round(self, state: LocalState, fed: Federation) -> tuple[LocalState, Notes]:
        """Everybody goes on from its own model; samples are shared as in a flat tree."""
        tree, before = flat_tree(fed.clients, fed.first_id), state.shared
        if state.models.keys() != fed.owned.keys():  # what is shared was not for those who came
            before = replace(before, pools={}).on(tree, fed.owned)
        samples = training_sets(tree, before.pools, fed.owned)
        models = {c: state.models[c] if c in state.models else fed.initial() for c in fed.clients}
        tasks = [fed.task(c, models[c], samples[c]) for c in fed.clients]
        outcomes = answered(fed.clients, fed.train(tasks))
        shared = share(tree, fed.owned, before, self.sharing, seed=fed.seed, round=fed.round)
        models |= {client: outcome.params for client, outcome in outcomes.items()}
        return LocalState(models, tree, shared), notes_of(outcomes, fed)

    def view(self, state: LocalState) -> View:
        """The root shows what averaging models that never met would give."""
        tree = state.tree
        everyone = dict.fromkeys(tree.children[tree.root] or (tree.root,), 1.0)
        root: dict[NodeId, Model] = {tree.root: blend(state.models, everyone)}
        return View(tree=tree, models=root | state.models, served=state.models, shared=state.shared)
