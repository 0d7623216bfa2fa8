"""SOFA-FL (arXiv:2512.08267, Algorithm 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sofa_fl.federation import Federation
from sofa_fl.methods.method import Notes, View
from sofa_fl.methods.registry import register
from sofa_fl.methods.rules.clusters import Models, Updates, means_up, mixed, trained_on_pools
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.local_update import LocalUpdate, moved_by_updates, path_of, warm_up
from sofa_fl.methods.rules.losses import FederationEvidence, compare_losses, objective_value
from sofa_fl.methods.rules.mixing import Mixing
from sofa_fl.methods.rules.noised import learned_so_far, rules_by_models
from sofa_fl.methods.rules.positions import map_of
from sofa_fl.methods.rules.rule_set import Rules, rules_of
from sofa_fl.methods.rules.state import SofaState, adapt_membership, told_apart_after
from sofa_fl.models.flat import Vector
from sofa_fl.present import Late, Lazy
from sofa_fl.sharing import Shared, SharingConfig, share
from sofa_fl.topology.clustering.shape import find_joins, foresee, prepare, shape
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
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
        rules, learned = self.rules_for(updates, {}, fed)
        space = rules.embed(updates, self.config, fed)
        tree = rules.build(space, self.config.dmac, fed.first_id)
        models = means_up(tree, {client: update.model for client, update in updates.items()}, fed)
        losses = compare_losses(tree, models, fed)
        mixing = rules.weigh(tree, models, losses, Mixing(), updates, self.config, fed)
        shared = self.share(tree, space, Shared(), fed)
        state = SofaState(tree, models, losses, mixing, shared, learned)
        return state, self.notes(state, (), updates, space, fed)

    def round(self, state: SofaState, fed: Federation) -> tuple[SofaState, Notes]:
        """Lines 4 to 7: local update, cluster update, SHAPE, partial data sharing."""
        fed = self.seen(fed)
        state, moves = adapt_membership(state, self.config, fed)  # who left, whose data changed
        local = LocalUpdate(state, self.rules, self.config, fed)
        updates, models = local.run()  # line 4
        if not updates:
            return replace(state, params=models), Notes(edits=moves, path_loss=state.losses)
        rules, learned = self.rules_for(updates, state.learned, fed)
        space = rules.embed(updates, self.config, fed)
        joins = find_joins(state.tree, space, local.suited)
        tree = apply_all(state.tree, joins)
        models |= self.cluster_update(tree, state, updates, fed)  # line 5
        known = {c: losses for c, losses in state.losses.items() if c not in updates}
        evidence = FederationEvidence(
            tree, space, models, fed, told_apart=state.told_apart, dmac=self.config.dmac
        )
        foreseen = foresee(tree, evidence, self.config.shape, rules)
        ask = partial(evidence.path_losses, foreseen=foreseen)  # one exchange for both
        fed.foresee(rules.weighed(tree, models, updates))
        ahead = partial(prepare, tree, evidence, self.config.shape, rules)
        with fed.spare.offered(ahead):
            losses = compare_losses(tree, models, fed, known, updates, ask)
        evidence, edits = self.reshape(evidence, rules)  # line 6: SHAPE
        if tree is not evidence.tree:
            tree, models = evidence.tree, dict(evidence.models)
            losses = compare_losses(tree, models, fed, losses, updates, evidence.path_losses)
        mixing = rules.weigh(tree, models, losses, state.mixing, updates, self.config, fed)
        shared = self.share(tree, space, state.shared.after(edits), fed)  # line 7
        told_apart = told_apart_after(state.told_apart, tree, edits, fed)
        state = SofaState(tree, models, losses, mixing, shared, learned, told_apart)
        return state, self.notes(state, (*moves, *joins, *edits), updates, space, fed)

    def view(self, state: SofaState) -> View:
        """Every node's model, and for each client the one it serves."""
        clients = dict.fromkeys(state.tree.clients)
        served = Lazy(clients, lambda c: self.rules.serve(path_of(state, c), self.config))
        return View(tree=state.tree, models=state.params, served=served, shared=state.shared)

    def seen(self, fed: Federation) -> Federation:
        """The federation as far as `sofa.evidence` looks."""
        return replace(fed, has_scores=False) if self.config.evidence == "models" else fed

    def rules_for(
        self, updates: Updates, before: Models, fed: Federation
    ) -> tuple[Rules, dict[NodeId, Vector]]:
        """The rules of a round, and what clients have learned, where nothing else is told."""
        if fed.has_scores:
            return self.rules, {}
        learned = learned_so_far(before, updates, fed.engine.num_trainable)
        return rules_by_models(self.rules, learned, self.config, fed), learned

    def cluster_update(
        self, tree: Tree, state: SofaState, updates: Updates, fed: Federation
    ) -> dict[NodeId, Vector]:
        """The new models of clients and clusters; below η = 1, clusters train on their pools."""
        eta = self.config.eta
        models = self.rules.clusters(tree, updates, self.config, fed)
        if self.config.start == "path" and self.config.propagation == "onepass":
            models |= moved_by_updates(state, tree, models, updates, fed)
        trained = trained_on_pools(state.tree, state.params, state.shared.pools, eta, fed)
        return mixed(models, trained, eta)

    def reshape(
        self, evidence: FederationEvidence, rules: Rules
    ) -> tuple[FederationEvidence, Sequence[Edit]]:
        """The tree after SHAPE with the models of its nodes, and the edits that led to it."""
        _, edits, evidence = shape(evidence.tree, evidence, self.config.shape, rules)
        return evidence, edits

    def share(self, tree: Tree, space: Space, before: Shared, fed: Federation) -> Shared:
        """Gather samples up the tree, distribute them down, and record who got what."""
        incoherence = space.incoherence_of(tree) if self.sharing.adaptive else None
        return share(
            tree, fed.owned, before, self.sharing,
            seed=fed.seed, round=fed.round, incoherence=incoherence,
        )  # fmt: skip

    def notes(
        self, state: SofaState, edits: Sequence[Edit], updates: Updates, space: Space,
        fed: Federation,
    ) -> Notes:  # fmt: skip
        """What happened in a round that led to this state."""
        objective = {}
        if fed.measured:
            objective = objective_value(state.tree, state.params, state.losses, self.config, fed)
        return Notes(
            edits=tuple(edits),
            local_loss={client: update.outcome.losses for client, update in updates.items()},
            path_loss=state.losses,
            positions=Late(partial(map_of, space)),
            objective=objective,
        )
