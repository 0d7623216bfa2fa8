"""SOFA-FL (arXiv:2512.08267, Algorithm 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval
from numpy.typing import NDArray

from sofa_fl.data.base import Samples
from sofa_fl.engine.base import Outcome, Pull, Task
from sofa_fl.errors import ConfigError
from sofa_fl.federation import Federation
from sofa_fl.methods.base import Notes, View
from sofa_fl.methods.hierarchy import (
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
from sofa_fl.methods.places import Place, places_of
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Model, as_vector
from sofa_fl.sharing import Shared, SharingConfig, share, training_sets
from sofa_fl.topology.dmac import DmacConfig, dmac
from sofa_fl.topology.map import map_of
from sofa_fl.topology.shape import ShapeConfig, shape
from sofa_fl.topology.space import Linkage, Metric, Space
from sofa_fl.topology.tree import NodeId, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class SofaConfig:
    """How SOFA-FL trains and serves.

    Attributes:
        propagation: `onepass`: a client trains once, from the blend of its path, and every
            cluster on its path learns from that. `cascade`: it trains once for every cluster on
            its path, from that cluster's model; the budget is divided among them.
        eta: Weight of the clients in a cluster's model, against the cluster's own training on
            its pool; at 1 clusters do not train.
        pull_siblings: Weight of the pull to the siblings' models (alpha).
        pull_parent: Weight of the pull to the parent's model (beta).
        place: What tells clients apart: their `weights`, their `updates` or their `latent`
            features on a fixed batch.
        metric: How far apart two places are.
        linkage: How far apart two clusters are: as their places (`centroid`) or, on `average`,
            as their clients; the latter does not make large clusters look near.
        sketch: Above 256 clients a place is measured against 64 of them exactly, and the rest of
            it is sketched; this many numbers are for the sketches of all clients together. 0
            takes all exactly, in quadratic time; places by the manhattan metric are never
            sketched.
        openness: Where a client starts, a cluster on its path counts by exp(−loss / scale), with
            the held-out loss of its model, and for scale this fraction of what a blind guess
            loses: the smaller, the less is learned from clusters that contradict the client.
        sharpness: In what a client serves, a model on its path counts by its held-out loss to the
            power of minus this; 0 blends evenly, a large number takes the best alone.
        steadiness: Held-out losses of a client are steadied by those of its siblings, as if by
            so many samples.
        serve: A client uses the `blend` of its path, the `best` model of it, or its `own`.
        dmac: How the tree is built.
        shape: When it changes.
    """

    propagation: Literal["onepass", "cascade"] = "onepass"
    eta: Annotated[float, Interval(ge=0, le=1)] = 1.0
    pull_siblings: Annotated[float, Ge(0)] = 1e-3
    pull_parent: Annotated[float, Ge(0)] = 1e-3
    place: Place = "weights"
    metric: Metric = "euclidean"
    linkage: Linkage = "average"
    sketch: Annotated[int, Ge(0)] = 1 << 24
    openness: Annotated[float, Gt(0)] = 0.2
    sharpness: Annotated[float, Ge(0)] = 4.0
    steadiness: Annotated[float, Ge(0)] = 500.0
    serve: Literal["blend", "best", "own"] = "blend"
    dmac: DmacConfig = field(default_factory=DmacConfig)
    shape: ShapeConfig = field(default_factory=ShapeConfig)

    def __post_init__(self) -> None:
        if self.metric == "manhattan" and self.linkage == "average":
            raise ConfigError("the manhattan metric needs sofa.linkage=centroid")


@dataclass(frozen=True, slots=True)
class SofaState:
    """All that a round needs and all that it returns."""

    tree: Tree
    params: Models  # one model per node of the tree
    losses: Losses  # steadied
    shared: Shared


Pass = tuple[Task, tuple[NodeId, ...]]  # a client's training, and the clusters it is for
Lessons = Mapping[tuple[NodeId, NodeId], tuple[Task, Outcome]]  # by client and cluster
Learned = Mapping[tuple[NodeId, NodeId], Vector]  # the same, what came of it alone


@dataclass(frozen=True, slots=True)
class Sofa:
    config: SofaConfig
    sharing: SharingConfig

    def init(self, fed: Federation) -> tuple[SofaState, Notes]:
        """Warm up every client alone, cluster the models (DMAC), share data."""
        start = fed.initial()
        tasks = [fed.task(client, start) for client in fed.clients]
        warm = list(zip(tasks, fed.train(tasks)))
        space = self.space(warm, fed)
        tree = dmac(space, self.config.dmac)
        params = means_up(tree, {task.site: outcome.params for task, outcome in warm}, fed)
        losses = compare(tree, params, fed)
        shared = self.share(tree, space, Shared(), fed)
        notes = Notes(local_loss=_curves(warm), path_loss=losses, places=map_of(space))
        return SofaState(tree, params, self.steadied(tree, losses, fed), shared), notes

    def round(self, state: SofaState, fed: Federation) -> tuple[SofaState, Notes]:
        """Local update, cluster update, comparison of losses, SHAPE, partial data sharing."""
        tree, shared = state.tree, state.shared
        own = self.own_update(state, fed)
        passes = self.passes(state, fed)
        del state  # a client's old model goes when its training has ended
        lessons = self.local_update(passes, fed)
        last = [lessons[client, parent_of(tree, client)] for client in fed.clients]
        space, curves = self.space(last, fed), _curves(last)
        learned = {key: outcome.params for key, (_, outcome) in lessons.items()}
        del lessons, last  # and with them the clusters' old models, where the clients started
        params = self.cluster_update(tree, learned, own, fed)
        losses = compare(tree, params, fed)
        tree, edits = shape(before := tree, space, self.config.shape)
        params = inherit(before, params, edits, fed)
        losses = compare(tree, params, fed, known=losses)
        shared = self.share(tree, space, shared, fed)
        places = map_of(space)
        notes = Notes(edits=tuple(edits), local_loss=curves, path_loss=losses, places=places)
        return SofaState(tree, params, self.steadied(tree, losses, fed), shared), notes

    def steadied(self, tree: Tree, losses: Losses, fed: Federation) -> Losses:
        return steady(tree, losses, fed, self.config.steadiness)

    def view(self, state: SofaState) -> View:
        served = {client: self.served(state, client) for client in state.tree.clients}
        return View(tree=state.tree, models=state.params, served=served, shared=state.shared)

    def served(self, state: SofaState, client: NodeId) -> Model:
        """The model a client uses, by the held-out losses of its path."""
        losses = state.losses[client]
        if self.config.serve == "own":
            return state.params[client]
        if self.config.serve == "best":
            return state.params[min(losses, key=lambda node: losses[node])]
        return blend(state.params, trust(losses, self.config.sharpness))

    def local_update(self, passes: Iterable[Pass], fed: Federation) -> Lessons:
        """Train every client for the clusters on its path."""
        asked: list[Pass] = []

        def tasks() -> Iterator[Task]:
            for task, clusters in passes:
                # Of what was asked, where it started is of use later; what pulled is not.
                asked.append((replace(task, pulls=()), clusters))
                yield task
                del task

        outcomes = fed.train(tasks())
        return {
            (task.site, cluster): (task, outcome)
            for (task, clusters), outcome in zip(asked, outcomes)
            for cluster in clusters
        }

    def passes(self, state: SofaState, fed: Federation) -> Iterator[Pass]:
        """What all clients train and for whom; siblings in a row, so that one mean serves them."""
        tree, models = state.tree, dict(state.params)
        samples = training_sets(tree, state.shared.pools, fed.owned)
        state = replace(state, params=models)
        for parent in dict.fromkeys(parent_of(tree, client) for client in fed.clients):
            family = as_vector(children_mean(tree, models, parent))
            for client in tree.children[parent] or (parent,):
                if client in tree.members:
                    yield from self.passes_of(client, state, samples[client], family, fed)
                    del models[client]

    def passes_of(
        self, client: NodeId, state: SofaState, samples: Samples, family: Vector, fed: Federation
    ) -> Iterator[Pass]:
        """What a client trains: once for all clusters on its path, or once for each."""
        clusters = above(state.tree, client)
        if self.config.propagation == "onepass":
            losses = {cluster: state.losses[client][cluster] for cluster in clusters}
            start = blend(state.params, agreement(losses, self.config.openness * fed.blind_loss))
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
            own |= {c: outcome.params for c, outcome in zip(clusters, fed.train(tasks))}
        return own

    def cluster_update(
        self, tree: Tree, learned: Learned, own: Models, fed: Federation
    ) -> dict[NodeId, Vector]:
        """Every cluster is now eta · (its clients) + (1 − eta) · (its own, trained on its pool)."""
        eta = self.config.eta
        models = {client: learned[client, parent_of(tree, client)] for client in tree.clients}
        if self.config.propagation == "onepass":
            taught = means_up(tree, models, fed)
        else:
            below = {c: tree.clients_of(c) for c in tree.clusters if tree.clients_of(c)}
            taught = models | {
                cluster: fed.mean({client: learned[client, cluster] for client in clients})
                for cluster, clients in below.items()
            }
        mixed = {
            cluster: eta * taught[cluster] + (1 - eta) * model if cluster in taught else model
            for cluster, model in own.items()
        }
        return {**taught, **mixed}

    def space(self, lessons: Sequence[tuple[Task, Outcome]], fed: Federation) -> Space:
        """Where the clients are, by what they learned."""
        config = self.config
        places = places_of(lessons, config.place, config.metric, fed, config.sketch)
        sites = tuple(task.site for task, _ in lessons)
        weights = np.array([fed.size(site) for site in sites], dtype=np.float64)
        return Space(sites, places, weights, config.metric, config.linkage)

    def share(self, tree: Tree, space: Space, before: Shared, fed: Federation) -> Shared:
        values = space.incoherences(space.locate(tree)).tolist()
        rows = zip(tree.order.nodes.tolist(), tree.order.is_client, values)
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


def _curves(lessons: Sequence[tuple[Task, Outcome]]) -> dict[NodeId, NDArray[np.float32]]:
    return {task.site: outcome.losses for task, outcome in lessons}
