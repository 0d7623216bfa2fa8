"""SOFA-FL (arXiv:2512.08267, Algorithm 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.methods.base import Notes, View
from sofa_fl.methods.registry import register
from sofa_fl.methods.rules.clusters import Updates, inherit, means_up, mixed, trained_on_pools
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.evidence import FederationEvidence
from sofa_fl.methods.rules.local_update import LocalUpdate, path_of, warm_up
from sofa_fl.methods.rules.mixing import Mixing
from sofa_fl.methods.rules.noised import Learned, grow, learned_so_far, parent_models, place
from sofa_fl.methods.rules.objective import objective_value
from sofa_fl.methods.rules.path import Losses, Models, compare_losses
from sofa_fl.methods.rules.positions import positions_of
from sofa_fl.methods.rules.rule_set import Rules, rules_of
from sofa_fl.methods.rules.state import (
    ModelStore,
    SofaState,
    are_small,
    let_leave,
    move_contradicted,
)
from sofa_fl.models.flat import Vector
from sofa_fl.present import Lazy
from sofa_fl.sharing import Shared, SharingConfig, share
from sofa_fl.topology.clustering.membership import find_joins
from sofa_fl.topology.clustering.shape import shape
from sofa_fl.topology.geometry.map import map_of
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from sofa_fl.topology.tree.edits import Edit, apply_all


@register("sofa", "SOFA-FL", SofaConfig, section="sofa")
class Sofa:
    """The method: `rules` decide, this class says in which order."""

    def __init__(
        self, config: SofaConfig, sharing: SharingConfig, rules: Rules | None = None
    ) -> None:
        self.config, self.sharing = config, sharing
        self.rules = rules or rules_of(config)

    def init(self, fed: Federation) -> tuple[SofaState, Notes]:
        """Lines 1 and 2: warm up every client alone, and build the tree (DMAC)."""
        fed = self.seen(fed)
        updates = warm_up(fed)
        learned = self.learned({}, updates, fed)
        space = self.embed(updates, fed, learned)
        tree = self.build(space, learned, fed)
        models = means_up(tree, {client: update.model for client, update in updates.items()}, fed)
        losses = compare_losses(tree, models, fed)
        shared = self.share(tree, space, Shared(), fed)
        mixing = self.weigh(tree, models, losses, Mixing(), updates, fed)
        state = SofaState(tree, models, losses, mixing, shared, learned)
        return self.finish(state, (), updates, space, fed)

    def round(self, state: SofaState, fed: Federation) -> tuple[SofaState, Notes]:
        """Lines 4 to 7: local update, cluster update, SHAPE, partial data sharing."""
        fed = self.seen(fed)
        state, moves = self.adapt_membership(state, fed)  # who left, whose data changed
        updates, models = LocalUpdate(state, self.rules, self.config, fed).run()  # line 4
        if not updates:
            return self.unchanged(state, models, moves, fed)
        learned = self.learned(state.learned, updates, fed)
        space = self.embed(updates, fed, learned)
        tree, joins = self.attach_newcomers(state.tree, space)
        models |= self.cluster_update(tree, state, updates, fed)  # line 5
        known = {c: losses for c, losses in state.losses.items() if c not in updates}
        losses = compare_losses(tree, models, fed, known, updates)
        tree, edits, models = self.reshape(tree, space, models, learned, fed)  # line 6: SHAPE
        losses = compare_losses(tree, models, fed, losses, updates)
        mixing = self.weigh(tree, models, losses, state.mixing, updates, fed)
        shared = self.share(tree, space, state.shared, fed)  # line 7
        state = SofaState(tree, models, losses, mixing, shared, learned)
        return self.finish(state, (*moves, *joins, *edits), updates, space, fed)

    def view(self, state: SofaState) -> View:
        """Every node's model, and for each client the one it serves."""
        clients = dict.fromkeys(state.tree.clients)
        served = Lazy(clients, lambda c: self.rules.serve(path_of(state, c), self.config))
        return View(tree=state.tree, models=state.params, served=served, shared=state.shared)

    def adapt_membership(
        self, state: SofaState, fed: Federation
    ) -> tuple[SofaState, tuple[Edit, ...]]:
        """Remove clients that left; move those that their new data contradict (`sofa.alert`)."""
        state, leaves = let_leave(state, fed)
        state, moves = move_contradicted(state, self.config, fed)
        store = ModelStore(state.params, keep=fed.may_miss or are_small(state.params))
        return replace(state, params=store), (*leaves, *moves)

    def seen(self, fed: Federation) -> Federation:
        """The federation as far as `sofa.evidence` looks."""
        return replace(fed, has_scores=False) if self.config.evidence == "models" else fed

    def learned(self, before: Learned, updates: Updates, fed: Federation) -> Learned:
        """What clients have learned so far, where nothing else tells them apart through noise."""
        if fed.has_scores:
            return {}
        return learned_so_far(before, updates, fed.engine.num_trainable)

    def embed(self, updates: Updates, fed: Federation, learned: Learned | None = None) -> Space:
        """The positions of the clients, by what they learned."""
        if not fed.has_scores:
            return place(learned or {}, tuple(updates), fed)
        config = self.config
        models, starts = zip(*((update.model, update.start) for update in updates.values()))
        positions = positions_of(models, starts, config.position, config.metric, fed, config.sketch)
        weights = np.array([fed.size(client) for client in updates], dtype=np.float64)
        return Space(tuple(updates), positions, weights, config.metric, config.linkage)

    def build(self, space: Space, learned: Learned, fed: Federation) -> Tree:
        """The first tree, by DMAC."""
        build, config = self.rules.build, self.config.dmac
        if fed.has_scores:
            return build(space, config, fed.first_id)
        return grow(flat_tree(space.clients, fed.first_id), learned, config, build, fed)[0]

    def attach_newcomers(self, tree: Tree, space: Space) -> tuple[Tree, Sequence[Edit]]:
        """Newcomers join the cluster that they are nearest to."""
        joins = find_joins(tree, space)
        return apply_all(tree, joins), joins

    def cluster_update(
        self, tree: Tree, state: SofaState, updates: Updates, fed: Federation
    ) -> dict[NodeId, Vector]:
        """The new models of clients and clusters; below η = 1, clusters train on their pools."""
        eta = self.config.eta
        own = trained_on_pools(state.tree, state.params, state.shared.pools, eta, fed)
        return mixed(self.rules.clusters(tree, updates, self.config, fed), own, eta)

    def reshape(
        self, tree: Tree, space: Space, models: Models, learned: Learned, fed: Federation
    ) -> tuple[Tree, Sequence[Edit], dict[NodeId, Vector]]:
        """The tree after SHAPE, the edits that led to it, and the models of its nodes.

        Without held-out losses clusters are only divided, by what their clients have learned.
        """
        if not fed.has_scores:
            after, edits = grow(tree, learned, self.config.dmac, self.rules.build, fed)
            return after, edits, inherit(tree, models, edits, fed)
        evidence = FederationEvidence(tree, space, models, fed)
        after, edits, evidence = shape(tree, evidence, self.config.shape, self.rules)
        return after, edits, dict(evidence.models)

    def weigh(
        self, tree: Tree, models: Models, losses: Losses, before: Mixing, updates: Updates,
        fed: Federation,
    ) -> Mixing:  # fmt: skip
        """How far every node goes its own way, by the held-out losses of those who answered."""
        weigh = self.rules.weigh if fed.has_scores else parent_models
        return weigh(tree, models, losses, before, updates, self.config, fed)

    def share(self, tree: Tree, space: Space, before: Shared, fed: Federation) -> Shared:
        """Gather samples up the tree, distribute them down, and record who got what."""
        nodes, values = tree.arrays.nodes.tolist(), space.incoherences(space.locate(tree)).tolist()
        incoherence = dict(zip(map(NodeId, nodes), values))
        return share(
            tree, fed.owned, before, self.sharing,
            seed=fed.seed, round=fed.round, incoherence=incoherence,
        )  # fmt: skip

    def finish(
        self, state: SofaState, edits: Sequence[Edit], updates: Updates, space: Space,
        fed: Federation,
    ) -> tuple[SofaState, Notes]:  # fmt: skip
        """The state after a round, and what happened in it."""
        objective = (
            objective_value(state.tree, state.params, state.losses, self.config, fed)
            if fed.measured
            else {}
        )
        notes = Notes(
            edits=tuple(edits),
            local_loss={client: update.outcome.losses for client, update in updates.items()},
            path_loss=state.losses,
            positions=map_of(space),
            objective=objective,
        )
        return state, notes

    def unchanged(
        self, state: SofaState, models: Models, moves: tuple[Edit, ...], fed: Federation
    ) -> tuple[SofaState, Notes]:
        """The state after a round in which no client answered."""
        return replace(state, params=models), Notes(edits=moves, path_loss=state.losses)
