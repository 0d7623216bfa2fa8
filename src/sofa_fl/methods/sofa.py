"""SOFA-FL (arXiv:2512.08267, Algorithm 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import Samples
from sofa_fl.engine.base import Outcome, Pull, Task
from sofa_fl.errors import RunError
from sofa_fl.federation import Federation, answered
from sofa_fl.methods.base import Notes, View
from sofa_fl.methods.registry import register
from sofa_fl.methods.rules.alert import find_contradicted, find_moves, look_around
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.hierarchy import (
    Losses,
    Models,
    above,
    agreement,
    blend,
    children_mean,
    compare,
    inherit,
    means_up,
    parent_of,
    steady,
    trust,
)
from sofa_fl.methods.rules.positions import positions_of
from sofa_fl.methods.rules.state import SofaState, edited, kept, left
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Model, as_vector
from sofa_fl.sharing import Shared, SharingConfig, share, training_sets
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.membership import find_joins
from sofa_fl.topology.clustering.shape import shape
from sofa_fl.topology.geometry.map import map_of
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, apply_all

Pass = tuple[Task, tuple[NodeId, ...]]  # a client's training, and the clusters it is for
Lesson = tuple[Task, Outcome]
Lessons = dict[NodeId, dict[NodeId, Lesson]]  # by client and cluster, the parent last
Learned = Mapping[NodeId, Mapping[NodeId, Vector]]  # the same, what came of it alone


@register("sofa", "SOFA-FL", SofaConfig, section="sofa")
@dataclass(frozen=True, slots=True)
class Sofa:
    config: SofaConfig
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[SofaState, Notes]:
        """Warm up every client alone, cluster the models (DMAC), share data."""
        start = fed.initial()
        tasks = [fed.task(client, start) for client in fed.clients]
        warm = [(t, outcome) for t, outcome in zip(tasks, fed.train(tasks)) if outcome is not None]
        if not warm:
            raise RunError("no client answered in the warm-up: there is nothing to begin with")
        space = self.space(warm, fed)
        tree = dmac(space, self.config.dmac, fed.first_id)
        params = means_up(tree, {task.site: outcome.params for task, outcome in warm}, fed)
        losses = compare(tree, params, fed)
        shared = self.share(tree, space, Shared(), fed)
        notes = Notes(local_loss=_curves(warm), path_loss=losses, positions=map_of(space))
        return SofaState(tree, params, losses, self.steadied(tree, losses, fed), shared), notes

    def round(self, state: SofaState, fed: Federation) -> tuple[SofaState, Notes]:
        """Local update, cluster update, comparison of losses, SHAPE, partial data sharing.

        Before that clients leave, and those move whom their new data contradict where they are;
        newcomers join where their first training leads them. Who is not heard stays as it is.
        """
        state, moves = self.moved(state, fed)
        tree, shared, known = state.tree, state.shared, state.losses
        own, params = self.own_update(state, fed), kept(state, fed)
        passes = self.passes(state, fed)
        del state  # a client's old model goes when its training has ended
        lessons, unheard = self.local_update(passes, fed)
        params |= {c: as_vector(start) for c, start in unheard.items() if c not in params}
        if not lessons:
            notes = Notes(edits=tuple(moves), path_loss=known)
            return SofaState(tree, params, known, self.steadied(tree, known, fed), shared), notes
        last = [list(lessons[client].values())[-1] for client in fed.clients if client in lessons]
        space, curves = self.space(last, fed), _curves(last)
        learned = {
            client: {cluster: outcome.params for cluster, (_, outcome) in of.items()}
            for client, of in lessons.items()
        }
        del lessons, last, unheard  # and with them the clusters' old models, where clients started
        tree = apply_all(tree, joins := find_joins(tree, space))
        params |= self.cluster_update(tree, learned, own, fed)
        known = {client: losses for client, losses in known.items() if client not in learned}
        losses = compare(tree, params, fed, known, learned)
        tree, edits = self.reshape(joined := tree, space)
        params = self.inherited(joined, tree, params, edits, fed)
        losses = compare(tree, params, fed, losses, learned)
        shared = self.share(tree, space, shared, fed)
        done, positions = (*moves, *joins, *edits), map_of(space)
        notes = Notes(edits=done, local_loss=curves, path_loss=losses, positions=positions)
        return SofaState(tree, params, losses, self.steadied(tree, losses, fed), shared), notes

    def reshape(self, tree: Tree, space: Space) -> tuple[Tree, Sequence[Edit]]:
        """The tree after a pass of SHAPE, and what it did."""
        return shape(tree, space, self.config.shape)

    def inherited(
        self, before: Tree, tree: Tree, models: Models, edits: Sequence[Edit], fed: Federation
    ) -> dict[NodeId, Vector]:
        """The models of the new tree."""
        return inherit(before, models, edits, fed)

    def steadied(self, tree: Tree, losses: Losses, fed: Federation) -> Losses:
        return steady(tree, losses, fed, self.config.steadiness)

    def moved(self, state: SofaState, fed: Federation) -> tuple[SofaState, list[Edit]]:
        """The state without those who left, and with those elsewhere who fit no longer."""
        steadiness, margin = self.config.steadiness, self.config.alert * fed.blind_loss
        state, leaves = left(state, steadiness, fed)
        tree, params = state.tree, state.params
        limits = find_contradicted(tree, params, state.losses, margin, fed)
        if not limits:
            return state, leaves
        moves = find_moves(tree, look_around(tree, params, list(limits), fed), limits)
        known = {c: {} if c in limits else losses for c, losses in state.losses.items()}
        return edited(replace(state, losses=known), moves, steadiness, fed), [*leaves, *moves]

    def view(self, state: SofaState) -> View:
        served = {client: self.served(state, client) for client in state.tree.clients}
        return View(tree=state.tree, models=state.params, served=served, shared=state.shared)

    def served(self, state: SofaState, client: NodeId) -> Model:
        """The model a client uses, by the held-out losses of its path."""
        losses = state.steadied[client]
        if self.config.serve == "own":
            return state.params[client]
        if self.config.serve == "best":
            return state.params[min(losses, key=lambda node: losses[node])]
        return blend(state.params, trust(losses, self.config.sharpness))

    def local_update(
        self, passes: Iterable[Pass], fed: Federation
    ) -> tuple[Lessons, dict[NodeId, Model]]:
        """Train every client for the clusters on its path.

        Of those in the tree who are not heard, where they would have started.
        """
        asked: list[Pass] = []

        def tasks() -> Iterator[Task]:
            for task, clusters in passes:
                # Of what was asked, where it started is of use later; what pulled is not.
                asked.append((replace(task, pulls=()), clusters))
                yield task
                del task

        lessons: Lessons = {}
        unheard: dict[NodeId, Model] = {}
        outcomes = fed.train(tasks())
        for (task, clusters), outcome in zip(asked, outcomes):
            if outcome is not None:
                lessons.setdefault(task.site, {}).update(dict.fromkeys(clusters, (task, outcome)))
            elif clusters != (task.site,):
                unheard[task.site] = task.start
        return lessons, unheard

    def passes(self, state: SofaState, fed: Federation) -> Iterator[Pass]:
        """What all clients train and for whom."""
        there = [c for c in fed.clients if c not in state.tree.members and c in fed.asked]
        ways = look_around(state.tree, state.params, there, fed) if there else {}
        first = [(fed.task(c, self.start(state, way, fed)), (c,)) for c, way in ways.items()]
        return chain(first, self.known_passes(state, fed))

    def known_passes(self, state: SofaState, fed: Federation) -> Iterator[Pass]:
        """Those of the clients in the tree; siblings in a row, so that one mean serves them."""
        tree, models = state.tree, dict(state.params)
        samples = training_sets(tree, state.shared.pools, fed.owned)
        state = replace(state, params=models)
        for parent in dict.fromkeys(parent_of(tree, client) for client in tree.clients):
            family = as_vector(children_mean(tree, models, parent))
            for client in tree.children[parent] or (parent,):
                if client in tree.members:
                    yield from self.passes_of(client, state, samples[client], family, fed)
                    del models[client]

    def start(self, state: SofaState, losses: Mapping[NodeId, float], fed: Federation) -> Model:
        """The blend of the clusters with these losses."""
        if not losses:  # a client alone is all there is
            return state.params[state.tree.root]
        return blend(state.params, agreement(losses, self.config.openness * fed.blind_loss))

    def passes_of(
        self, client: NodeId, state: SofaState, samples: Samples, family: Vector, fed: Federation
    ) -> Iterator[Pass]:
        """What a client trains: once for all clusters on its path, or once for each."""
        clusters = above(state.tree, client)
        if self.config.propagation == "onepass":
            start = self.start(state, {c: state.steadied[client][c] for c in clusters}, fed)
            pulls = self.pulls(state, client, clusters[-1], family)
            yield fed.task(client, start, samples, pulls=pulls), clusters
            return
        for cluster, batches in zip(clusters, divided(fed.local.batches, len(clusters))):
            task = fed.task(
                client,
                state.params[cluster],
                samples,
                pulls=self.pulls(state, client, cluster, family),
                batches=batches,
                purpose=f"train for {cluster}",
            )
            yield task, (cluster,)

    def pulls(
        self, state: SofaState, client: NodeId, cluster: NodeId, family: Vector
    ) -> list[Pull]:
        """The objective's two pulls on a client that trains for `cluster`.

        beta · ‖x − cluster‖² belongs to every training; alpha / |C| · Σ ‖x − sibling‖² to that
        for the parent. Its gradient is that of alpha · ‖x − m‖² − alpha / |C| · ‖x − own‖², with m
        (`family`) the mean of all of C: one new model per cluster, not one per client.
        """
        to_parent = Pull(state.params[cluster], self.config.pull_parent)
        if cluster != state.tree.parent[client]:
            return [to_parent]
        size, alpha = len(state.tree.children[cluster]), self.config.pull_siblings
        own = Pull(state.params[client], -alpha / size)
        return [to_parent, Pull(family, alpha), own]

    def own_update(self, state: SofaState, fed: Federation) -> dict[NodeId, Vector]:
        """What clusters are of themselves: trained on their pools, if that counts at all.

        A cluster without clients, where nothing prunes it, stays what it is.
        """
        tree, pools = state.tree, state.shared.pools
        own = {c: state.params[c] for c in tree.clusters if not tree.clients_of(c)}
        if self.config.eta < 1:
            clusters = [cluster for cluster in tree.clusters if len(pools[cluster])]
            tasks = (fed.task(c, state.params[c], pools[c]) for c in clusters)
            trained = answered(clusters, fed.train(tasks))
            own |= {cluster: outcome.params for cluster, outcome in trained.items()}
        return own

    def cluster_update(
        self, tree: Tree, learned: Learned, own: Models, fed: Federation
    ) -> dict[NodeId, Vector]:
        """Every cluster is now eta · (its clients) + (1 − eta) · (its own, trained on its pool)."""
        eta = self.config.eta
        models = {client: list(of.values())[-1] for client, of in learned.items()}
        if self.config.propagation == "onepass":
            taught = means_up(tree, models, fed)
        else:
            taught = dict(models)
            for cluster in tree.clusters:
                below = [client for client in tree.clients_of(cluster) if client in learned]
                if below:  # what a newcomer has learned, it has learned for all
                    found = {c: learned[c].get(cluster, models[c]) for c in below}
                    taught[cluster] = fed.mean(found)
        mixed = {
            cluster: eta * taught[cluster] + (1 - eta) * model if cluster in taught else model
            for cluster, model in own.items()
        }
        return {**taught, **mixed}

    def space(self, lessons: Sequence[Lesson], fed: Federation) -> Space:
        """Where the clients are, by what they learned."""
        config = self.config
        positions = positions_of(lessons, config.position, config.metric, fed, config.sketch)
        sites = tuple(task.site for task, _ in lessons)
        weights = np.array([fed.size(site) for site in sites], dtype=np.float64)
        return Space(sites, positions, weights, config.metric, config.linkage)

    def share(self, tree: Tree, space: Space, before: Shared, fed: Federation) -> Shared:
        values = space.incoherences(space.locate(tree)).tolist()
        rows = zip(tree.arrays.nodes.tolist(), tree.arrays.is_client, values)
        incoherence = {NodeId(node): value for node, client, value in rows if not client}
        return share(
            tree,
            fed.owned,
            before,
            self.sharing,
            seed=fed.seed,
            round=fed.round,
            incoherence=incoherence,
        )


def divided(batches: int, parts: int) -> list[int]:
    """`batches` in `parts` shares as equal as can be, none empty."""
    ends = [batches * part // parts for part in range(parts + 1)]
    return [max(1, b - a) for a, b in pairwise(ends)]


def _curves(lessons: Sequence[Lesson]) -> dict[NodeId, NDArray[np.float32]]:
    return {task.site: outcome.losses for task, outcome in lessons}
