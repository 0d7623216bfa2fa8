"""SOFA-FL (arXiv:2512.08267, Algorithm 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sofa_fl.errors import RunError
from sofa_fl.federation import Federation, answered
from sofa_fl.methods.base import Notes, View
from sofa_fl.methods.rules.clusters import (
    Update,
    Updates,
    inherit,
    means_up,
    mixed,
    trained_on_pools,
)
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.local_update import LocalUpdate, path_of
from sofa_fl.methods.rules.losses import Losses, Models, compare_losses, steady
from sofa_fl.methods.rules.membership import let_leave, move_contradicted
from sofa_fl.methods.rules.objective import objective_value
from sofa_fl.methods.rules.positions import positions_of
from sofa_fl.methods.rules.rule_set import Rules, rules_of
from sofa_fl.methods.rules.state import ModelStore, SofaState
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import as_vector
from sofa_fl.sharing import Shared, SharingConfig, share
from sofa_fl.topology.clustering.membership import find_joins
from sofa_fl.topology.geometry.map import map_of
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, apply_all


class Sofa:
    """The method: `rules` decide, this class says in which order."""

    def __init__(
        self, config: SofaConfig, sharing: SharingConfig, rules: Rules | None = None
    ) -> None:
        self.config, self.sharing = config, sharing
        self.rules = rules or rules_of(config)

    def init(self, fed: Federation) -> tuple[SofaState, Notes]:
        """Lines 1 and 2: warm up every client alone, and build the tree (DMAC)."""
        updates = self.warm_up(fed)
        space = self.embed(updates, fed)
        tree = self.rules.build(space, self.config.dmac, fed.first_id)
        models = means_up(tree, {client: update.model for client, update in updates.items()}, fed)
        losses = compare_losses(tree, models, fed)
        shared = self.share(tree, space, Shared(), fed)
        return self.finish(tree, models, losses, shared, (), updates, space, fed)

    def round(self, state: SofaState, fed: Federation) -> tuple[SofaState, Notes]:
        """Lines 4 to 7: local update, cluster update, SHAPE, partial data sharing."""
        state, moves = self.adapt_membership(state, fed)  # who left, whose data changed
        updates, models = self.local_update(state, fed)  # line 4
        if not updates:  # no client answered: everything stays as it is
            return self.unchanged(state, models, moves, fed)
        space = self.embed(updates, fed)
        tree, joins = attach_newcomers(state.tree, space)
        models |= self.cluster_update(tree, state, updates, fed)  # line 5
        losses = self.compare_losses(tree, models, state.losses, updates, fed)
        before = tree
        tree, edits = self.reshape(tree, space)  # line 6: SHAPE
        models = self.inherit(before, tree, models, edits, fed)
        losses = compare_losses(tree, models, fed, losses, updates)
        shared = self.share(tree, space, state.shared, fed)  # line 7
        done = (*moves, *joins, *edits)
        return self.finish(tree, models, losses, shared, done, updates, space, fed)

    def view(self, state: SofaState) -> View:
        """Every node's model, and for each client the one it serves."""
        served = {
            client: self.rules.serve(path_of(state, client, state.params, 1.0), self.config)
            for client in state.tree.clients
        }
        return View(tree=state.tree, models=state.params, served=served, shared=state.shared)

    def warm_up(self, fed: Federation) -> dict[NodeId, Update]:
        """Train every client alone, all from the same start."""
        start = fed.initial()
        outcomes = fed.train([fed.task(client, start) for client in fed.clients])
        heard = answered(fed.clients, outcomes)
        if not heard:
            raise RunError("no client answered in the warm-up, so there is no model to begin with")
        return {client: Update(start, outcome) for client, outcome in heard.items()}

    def adapt_membership(
        self, state: SofaState, fed: Federation
    ) -> tuple[SofaState, tuple[Edit, ...]]:
        """Remove clients that left; move those that their new data contradict (`sofa.alert`)."""
        state, leaves = let_leave(state, self.config, fed)
        state, moves = move_contradicted(state, self.config, fed)
        store = ModelStore(state.params, keep=fed.may_miss)
        return replace(state, params=store), (*leaves, *moves)

    def local_update(
        self, state: SofaState, fed: Federation
    ) -> tuple[dict[NodeId, Update], dict[NodeId, Vector]]:
        """Train every client; also return the models that are still there afterwards."""
        assert isinstance(state.params, ModelStore)
        local = LocalUpdate(state, state.params, self.rules, self.config, fed)
        updates, missed = local.run()
        models = dict(state.params)
        models |= {c: as_vector(start) for c, start in missed.items() if c not in models}
        return updates, models

    def embed(self, updates: Updates, fed: Federation) -> Space:
        """The positions of the clients, by what they learned."""
        config = self.config
        models, starts = zip(*((update.model, update.start) for update in updates.values()))
        positions = positions_of(models, starts, config.position, config.metric, fed, config.sketch)
        weights = np.array([fed.size(client) for client in updates], dtype=np.float64)
        return Space(tuple(updates), positions, weights, config.metric, config.linkage)

    def cluster_update(
        self, tree: Tree, state: SofaState, updates: Updates, fed: Federation
    ) -> dict[NodeId, Vector]:
        """The new models of clients and clusters; below η = 1, clusters train on their pools."""
        eta = self.config.eta
        own = trained_on_pools(state.tree, state.params, state.shared.pools, eta, fed)
        return mixed(self.rules.clusters(tree, updates, self.config, fed), own, eta)

    def compare_losses(
        self, tree: Tree, models: Models, before: Losses, updates: Updates, fed: Federation
    ) -> Losses:
        """Clients that trained measure every model on their path; the others keep their losses."""
        known = {client: losses for client, losses in before.items() if client not in updates}
        return compare_losses(tree, models, fed, known, updates)

    def reshape(self, tree: Tree, space: Space) -> tuple[Tree, Sequence[Edit]]:
        """The tree after SHAPE, and the edits that led to it."""
        return self.rules.reshape(tree, space, self.config.shape)

    def inherit(
        self, before: Tree, after: Tree, models: Models, edits: Sequence[Edit], fed: Federation
    ) -> dict[NodeId, Vector]:
        """The models of the reshaped tree."""
        return inherit(before, models, edits, fed)

    def share(self, tree: Tree, space: Space, before: Shared, fed: Federation) -> Shared:
        """Gather samples up the tree, distribute them down, and record who got what."""
        incoherence = space.incoherences(space.locate(tree)).tolist()
        return share(
            tree,
            fed.owned,
            before,
            self.sharing,
            seed=fed.seed,
            round=fed.round,
            incoherence=dict(zip(map(NodeId, tree.arrays.nodes.tolist()), incoherence)),
        )

    def finish(
        self,
        tree: Tree,
        models: Models,
        losses: Losses,
        shared: Shared,
        edits: tuple[Edit, ...],
        updates: Updates,
        space: Space,
        fed: Federation,
    ) -> tuple[SofaState, Notes]:
        """The state after a round, and what happened in it."""
        notes = Notes(
            edits=edits,
            local_loss={client: update.outcome.losses for client, update in updates.items()},
            path_loss=losses,
            positions=map_of(space),
            objective=objective_value(tree, models, losses, self.config, fed),
        )
        steadied = steady(tree, losses, fed, self.config.steadiness)
        return SofaState(tree, models, losses, steadied, shared), notes

    def unchanged(
        self, state: SofaState, models: Models, moves: tuple[Edit, ...], fed: Federation
    ) -> tuple[SofaState, Notes]:
        """The state after a round in which no client answered."""
        steadied = steady(state.tree, state.losses, fed, self.config.steadiness)
        notes = Notes(edits=moves, path_loss=state.losses)
        return replace(state, params=models, steadied=steadied), notes


def attach_newcomers(tree: Tree, space: Space) -> tuple[Tree, Sequence[Edit]]:
    """Newcomers join the cluster that they are nearest to."""
    joins = find_joins(tree, space)
    return apply_all(tree, joins), joins
