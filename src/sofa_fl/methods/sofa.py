"""SOFA-FL (arXiv:2512.08267, Algorithm 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Interval

from sofa_fl.engine.base import Outcome, Pull, Task
from sofa_fl.errors import ConfigError
from sofa_fl.federation import Federation
from sofa_fl.methods.base import Notes, View
from sofa_fl.methods.hierarchy import (
    Losses,
    Models,
    blend,
    children_mean,
    compare,
    inherit,
    mean_of,
    trust,
)
from sofa_fl.methods.places import Place, places_of
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import Shared, SharingConfig, share, training_set
from sofa_fl.topology.dmac import DmacConfig, dmac
from sofa_fl.topology.edits import Edit
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
        sketch: Above 512 clients a place is measured against 512 of them exactly, and the rest of
            it is sketched to this many numbers, in time and memory linear in the clients; 0 takes
            all exactly, in quadratic time. Places by the manhattan metric are never sketched.
        sharpness: A model on a client's path counts by its held-out loss to the power of minus
            this; 0 blends evenly, a large number takes the best alone.
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
    sketch: Annotated[int, Ge(0)] = 4096
    sharpness: Annotated[float, Ge(0)] = 2.0
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
    losses: Losses
    shared: Shared


Lessons = Mapping[tuple[NodeId, NodeId], tuple[Task, Outcome]]  # by client and cluster


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
        params = {task.site: outcome.params for task, outcome in warm}
        for cluster in reversed(tree.clusters):
            params[cluster] = mean_of(tree.children[cluster], tree, params, fed)
        losses = compare(tree, params, fed)
        shared = self.share(tree, space, Shared(), fed)
        return SofaState(tree, params, losses, shared), _notes(warm, losses)

    def round(self, state: SofaState, fed: Federation) -> tuple[SofaState, Notes]:
        """Local update, cluster update, comparison of losses, SHAPE, partial data sharing."""
        lessons = self.local_update(state, fed)
        params = self.cluster_update(state, lessons, fed)
        losses = compare(state.tree, params, fed)
        last = [lessons[client, _parent(state.tree, client)] for client in fed.clients]
        space = self.space(last, fed)
        tree, edits = shape(state.tree, space, self.config.shape)
        params = inherit(state.tree, params, edits, fed)
        losses = compare(tree, params, fed, known=losses)
        shared = self.share(tree, space, state.shared, fed)
        return SofaState(tree, params, losses, shared), _notes(last, losses, edits)

    def view(self, state: SofaState) -> View:
        served = {client: self.served(state, client) for client in state.tree.clients}
        return View(tree=state.tree, models=state.params, served=served, shared=state.shared)

    def served(self, state: SofaState, client: NodeId) -> Vector:
        """The model a client uses, by the held-out losses of its path."""
        losses = state.losses[client]
        if self.config.serve == "own":
            return state.params[client]
        if self.config.serve == "best":
            return state.params[min(losses, key=lambda node: losses[node])]
        return blend(state.params, trust(losses, self.config.sharpness))

    def local_update(self, state: SofaState, fed: Federation) -> Lessons:
        """Train every client for the clusters on its path."""
        parents = dict.fromkeys(_parent(state.tree, client) for client in fed.clients)
        family = {node: children_mean(state.tree, state.params, node) for node in parents}
        passes = [p for client in fed.clients for p in self.passes(state, client, family, fed)]
        outcomes = fed.train([task for task, _ in passes])
        return {
            (task.site, cluster): (task, outcome)
            for (task, clusters), outcome in zip(passes, outcomes)
            for cluster in clusters
        }

    def passes(
        self, state: SofaState, client: NodeId, family: Models, fed: Federation
    ) -> list[tuple[Task, tuple[NodeId, ...]]]:
        """What a client trains, and for whom: once for all clusters on its path, or for each."""
        above = _above(state.tree, client)
        samples = training_set(state.tree, state.shared.pools, client, fed.owned[client])
        if self.config.propagation == "onepass":
            losses = {cluster: state.losses[client][cluster] for cluster in above}
            start = blend(state.params, trust(losses, self.config.sharpness))
            pulls = self.pulls(state, client, above[-1], family)
            return [(fed.task(client, start, samples, pulls=pulls), above)]
        return [
            (
                fed.task(
                    client,
                    state.params[cluster],
                    samples,
                    pulls=self.pulls(state, client, cluster, family),
                    batches=batches,
                    purpose=f"train for {cluster}",
                ),
                (cluster,),
            )
            for cluster, batches in zip(above, _divide(fed.local.batches, len(above)))
        ]

    def pulls(
        self, state: SofaState, client: NodeId, cluster: NodeId, family: Models
    ) -> list[Pull]:
        """The objective's two pulls on a client that trains for `cluster`.

        beta · ‖x − cluster‖² belongs to every training; alpha / |C| · Σ ‖x − sibling‖² to that
        for the parent. Its gradient is that of alpha · ‖x − m‖² − alpha / |C| · ‖x − own‖², with m
        the mean of all of C: one new model per cluster, where it could have been one per client.
        """
        to_parent = Pull(state.params[cluster], self.config.pull_parent)
        if cluster != state.tree.parent[client]:
            return [to_parent]
        size, alpha = len(state.tree.children[cluster]), self.config.pull_siblings
        own = Pull(state.params[client], -alpha / size)
        return [to_parent, Pull(family[cluster], alpha), own]

    def cluster_update(
        self, state: SofaState, lessons: Lessons, fed: Federation
    ) -> dict[NodeId, Vector]:
        """Every cluster is now eta · (its clients) + (1 − eta) · (its own, trained on its pool)."""
        tree, eta, pools = state.tree, self.config.eta, state.shared.pools
        params: dict[NodeId, Vector] = {}
        for client in tree.clients:
            params[client] = lessons[client, _parent(tree, client)][1].params
        for cluster in tree.clusters:
            taught = {c: lessons[c, cluster][1].params for c in tree.clients_of(cluster)}
            params[cluster] = fed.mean(taught) if taught else state.params[cluster]
        if eta < 1:
            tasks = [fed.task(c, state.params[c], pools[c]) for c in tree.clusters if len(pools[c])]
            for task, outcome in zip(tasks, fed.train(tasks)):
                params[task.site] = eta * params[task.site] + (1 - eta) * outcome.params
        return params

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


def _above(tree: Tree, client: NodeId) -> tuple[NodeId, ...]:
    """The clusters on a client's path; a client alone stands for its own."""
    return tree.path(client)[:-1] or (client,)


def _parent(tree: Tree, client: NodeId) -> NodeId:
    return _above(tree, client)[-1]


def _divide(batches: int, parts: int) -> list[int]:
    """`batches` in `parts` shares as equal as can be, none empty."""
    ends = [batches * part // parts for part in range(parts + 1)]
    return [max(1, b - a) for a, b in pairwise(ends)]


def _notes(
    lessons: Sequence[tuple[Task, Outcome]], losses: Losses, edits: Sequence[Edit] = ()
) -> Notes:
    curves = {task.site: outcome.losses for task, outcome in lessons}
    return Notes(edits=tuple(edits), local_loss=curves, path_loss=losses)
