"""SOFA-FL (arXiv:2512.08267, Algorithm 6): a round trains, asks, and decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from sofa_fl.federation import Federation
from sofa_fl.methods.method import Notes, View
from sofa_fl.methods.positions import map_of
from sofa_fl.methods.registry import register
from sofa_fl.methods.sofa.averages import (
    Models,
    Updates,
    made_by,
    mean_of_clients,
    means_up,
    moved_by_updates,
)
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.local import local_update, warm_up
from sofa_fl.methods.sofa.mixing import Mixing, weigh
from sofa_fl.methods.sofa.paper import mixed, objective_value, regularized_mean, trained_on_pools
from sofa_fl.methods.sofa.positions import positions_of
from sofa_fl.methods.sofa.questions import Answers, ask
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.models.flat import Model, Vector
from sofa_fl.present import Late, Lazy
from sofa_fl.sharing import SharingConfig, share
from sofa_fl.topology.dmac import dmac
from sofa_fl.topology.edits import Edit, apply_all
from sofa_fl.topology.paper import PAPER_RULES
from sofa_fl.topology.shape import (
    Proposal,
    Proposer,
    decide,
    edits_of,
    find_joins,
    find_leaves,
    find_prunes,
)
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree


@register("sofa", "SOFA-FL", SofaConfig, section="sofa")
class Sofa:
    """The method. A subclass replaces one of its steps."""

    def __init__(self, config: SofaConfig, sharing: SharingConfig) -> None:
        self.config, self.sharing = config, sharing

    def init(self, fed: Federation) -> tuple[SofaState, Notes]:
        """Lines 1 and 2: warm up every client alone, and build the tree (DMAC)."""
        return self.seeing(fed).begin(fed)

    def round(self, state: SofaState, fed: Federation) -> tuple[SofaState, Notes]:
        """Lines 4 to 7: local update, cluster update, SHAPE, partial data sharing."""
        return self.seeing(fed).go_on(state, fed)

    def seeing(self, fed: Federation) -> Sofa:
        """The method as far as `sofa.evidence` looks, and clients tell what models lose."""
        if fed.has_scores and self.config.evidence == "losses":
            return self
        from sofa_fl.methods.sofa.by_models import SofaByModels

        return self if isinstance(self, SofaByModels) else SofaByModels(self.config, self.sharing)

    @property
    def is_own(self) -> bool:
        """Whether clients go on from their own models, and use these, as in the paper."""
        return self.config.start == self.config.serve == "own"

    def begin(self, fed: Federation) -> tuple[SofaState, Notes]:
        updates = warm_up(fed)
        learned = self.learned({}, updates, fed)
        space = self.positions(updates, learned, fed)
        tree = self.grow(space, learned, fed)
        models = means_up(tree, {client: update.model for client, update in updates.items()}, fed)
        state = SofaState(tree, models, learned=learned)
        _, answers = self.ask(state, space, updates, fed, first=True)
        state = self.weighed(state, answers, fed)
        state = replace(state, mixing=replace(state.mixing, idle={}))  # nobody has learned from it
        return self.shared(state, space, fed), self.notes(state, (), updates, space, fed)

    def go_on(self, state: SofaState, fed: Federation) -> tuple[SofaState, Notes]:
        leaves = find_leaves(state.tree, fed.owned)
        state = state.after(leaves, fed)
        updates = local_update(state, self.config, fed)  # line 4: the first exchange
        if not updates:
            return state, Notes(edits=tuple(leaves), path_loss=state.losses)
        learned = self.learned(state.learned, updates, fed)
        space = self.positions(updates, learned, fed)
        joins = find_joins(state.tree, space)
        state = self.regrown(replace(state.after(joins, fed), learned=learned), space, fed)
        state = replace(state, models=self.cluster_update(state, updates, fed))  # line 5
        proposals, answers = self.ask(state, space, updates, fed)  # the second exchange
        state = self.weighed(state, answers, fed)
        edits = self.edits(state, space, proposals, answers, fed)  # line 6: SHAPE
        state = self.shared(state.after(edits, fed), space, fed)  # line 7
        return state, self.notes(state, (*leaves, *joins, *edits), updates, space, fed)

    def view(self, state: SofaState) -> View:
        """Every node's model, and for each client the one it serves."""

        def serve(client: NodeId) -> Model:
            return state.models[client] if self.config.serve == "own" else state.effective(client)

        served = Lazy(dict.fromkeys(state.tree.clients), serve)
        return View(tree=state.tree, models=state.models, served=served, shared=state.shared)

    def learned(self, before: Models, updates: Updates, fed: Federation) -> dict[NodeId, Vector]:
        """What is remembered of clients' updates, besides their models."""
        return {}

    def positions(self, updates: Updates, learned: Models, fed: Federation) -> Space:
        """Where the clients are, by what they learned in this round."""
        return positions_of(updates, self.config, fed)

    def grow(self, space: Space, learned: Models, fed: Federation) -> Tree:
        """The first tree."""
        return dmac(space, self.config.dmac, fed.first_id)

    def regrown(self, state: SofaState, space: Space, fed: Federation) -> SofaState:
        """The tree is not built anew."""
        return state

    def cluster_update(self, state: SofaState, updates: Updates, fed: Federation) -> Models:
        """The models of clients and clusters; below η = 1, clusters train on their pools."""
        config, tree, before = self.config, state.tree, state.models
        means = {"mean": mean_of_clients, "regularized": regularized_mean}[config.clusters]
        models = means(tree, updates, config, fed)
        if config.start == "path" and config.propagation == "onepass":
            models |= moved_by_updates(tree, before, models, updates, fed)
        trained = trained_on_pools(tree, before, state.shared.pools, config.eta, fed)
        return {**before, **mixed(models, trained, config.eta)}

    def proposer(self, state: SofaState, space: Space, fed: Federation) -> Proposer:
        """What positions suggest, of those operations that go by losses."""
        config, rules, unit = self.config.shape, self.config.rules, fed.blind_loss
        by_losses = [name for name in config.operations if getattr(rules, name, "") == "default"]
        missed = state.mixing.missed
        new = {c for c in state.tree.clients if fed.has_new_data(c, 1 + missed.get(c, 0))}

        def is_due(node: NodeId) -> bool:
            return node in new or (node + fed.round) % config.every == 0

        return Proposer(
            state.tree,
            space,
            replace(config, operations=tuple(by_losses)),
            self.config.dmac,
            is_due,
            state.mixing.selfish(config.least) - new,  # they were while they had other data
            {c for c, path in state.losses.items() if [*path.values()][-2:][0] > unit},
            {n for n, since in state.arrivals.items() if fed.round < since + config.patience},
        )

    def propose(self, proposer: Proposer) -> list[Proposal]:
        """The edits that clients are asked about."""
        return proposer.all()

    def ask(
        self, state: SofaState, space: Space, updates: Updates, fed: Federation, first: bool = False
    ) -> tuple[list[Proposal], Answers]:
        """What models lose for clients: those on their paths, mixtures, and proposals'."""
        proposer = self.proposer(state, space, fed)
        proposals = [] if first else self.propose(proposer)
        made, others = made_by(state.tree, updates, fed), {} if self.is_own else proposer.others()
        weighs = not self.is_own
        return proposals, ask(state, proposals, others, made, updates, fed, weighs)

    def weighed(self, state: SofaState, answers: Answers, fed: Federation) -> SofaState:
        """The state with new losses and mixing weights."""
        samples = {client: len(fed.judged_on(client)) for client in answers.paths}
        state = state.measured(answers.paths, fed.blind_loss)
        if self.is_own:  # there is nothing to weigh
            return replace(state, mixing=Mixing(dict.fromkeys(state.tree.parent, 1.0)))
        mixing = weigh(
            state.tree,
            state.mixing,
            answers.mixtures,
            samples,
            answers.paths,
            self.config.steadiness,
            self.config.shape.least,
            fed.blind_loss,
            {client for client, loss in answers.others.items() if loss > fed.blind_loss},
        )
        return replace(state, mixing=mixing)

    def edits(
        self,
        state: SofaState,
        space: Space,
        proposals: Sequence[Proposal],
        answers: Answers,
        fed: Federation,
    ) -> list[Edit]:
        """SHAPE: the proposals that hold; where the paper's rules are chosen, all of theirs."""
        config, tree, edits = self.config.shape, state.tree, list[Edit]()
        chosen = decide(tree, proposals, answers.claims, fed.blind_loss, config)
        for name in ("graft", "merge", "split"):
            if name not in config.operations:
                continue
            if getattr(self.config.rules, name) == "paper":
                new = PAPER_RULES[name](tree, space, config)
            else:
                new = edits_of(tree, chosen, name)
            tree, edits = apply_all(tree, new), [*edits, *new]
        if "prune" in config.operations:
            idle = {k for k, rounds in state.mixing.idle.items() if rounds >= config.patience}
            edits += find_prunes(tree, idle)
        return edits

    def shared(self, state: SofaState, space: Space, fed: Federation) -> SofaState:
        """Gather samples up the tree, distribute them down, and record who got what."""
        incoherence = space.incoherence_of(state.tree) if self.sharing.adaptive else None
        shared = share(
            state.tree, fed.owned, state.shared, self.sharing,
            seed=fed.seed, round=fed.round, incoherence=incoherence,
        )  # fmt: skip
        return replace(state, shared=shared)

    def notes(
        self, state: SofaState, edits: Sequence[Edit], updates: Updates, space: Space,
        fed: Federation,
    ) -> Notes:  # fmt: skip
        """What happened in a round that led to this state."""
        objective: Mapping[str, float] = {}
        if fed.measured:
            objective = objective_value(state.tree, state.models, state.losses, self.config, fed)
        return Notes(
            edits=tuple(edits),
            local_loss={client: update.outcome.losses for client, update in updates.items()},
            path_loss=state.losses,
            positions=Late(partial(map_of, space)),
            objective=objective,
        )
