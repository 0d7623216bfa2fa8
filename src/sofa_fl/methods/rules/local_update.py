"""Line 4 of Algorithm 6: what every client trains, from where, on what, pulled where.

A client's path, root to parent to itself, spans everything from one model for all (the root) to a
model of the client's own (the leaf). The rules say where on it a client starts, what pulls it, and
what it serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import Pull, Task, answered
from sofa_fl.errors import RunError
from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import Models, Update, Updates
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.mixing import Mixing
from sofa_fl.methods.rules.state import ModelStore, SofaState, search_down
from sofa_fl.models.flat import IdentityDict, Mix, Model, Vector, as_vector
from sofa_fl.sharing import training_sets
from sofa_fl.topology.tree import NodeId, Tree, value_at_level

if TYPE_CHECKING:
    from sofa_fl.methods.rules.rule_set import Rules

Lesson = tuple[Task, NodeId | None]  # a training, and the cluster that it is for (None: for all)


@dataclass(frozen=True, slots=True)
class LocalUpdate:
    """The local update of a round; it frees clients' old models in `state.params` as it goes.

    Attributes:
        suited: The cluster whose model every newcomer starts from, filled in as they do.
    """

    state: SofaState
    rules: Rules
    config: SofaConfig
    fed: Federation
    suited: dict[NodeId, NodeId] = field(default_factory=dict)

    @property
    def store(self) -> ModelStore:
        assert isinstance(self.state.params, ModelStore)
        return self.state.params

    def run(self) -> tuple[dict[NodeId, Update], dict[NodeId, Vector]]:
        """Train all clients; return their updates, and the models that are left of before.

        A client that did not answer has the model it started from, where its own was freed.
        """
        asked: list[Lesson] = []
        outcomes = self.fed.train(self._remembered(chain(self.first(), self.usual()), asked))
        updates: dict[NodeId, Update] = {}
        missed: dict[NodeId, Model] = {}
        for (task, cluster), outcome in zip(asked, outcomes):
            client = task.site
            if outcome is not None:
                taught = dict(updates[client].taught) if client in updates else {}
                taught |= {} if cluster is None else {cluster: outcome.params}
                updates[client] = Update(task.start, outcome, taught)
            elif client in self.state.tree.members:
                missed[client] = task.start
        models = dict(self.store)
        models |= {c: as_vector(start) for c, start in missed.items() if c not in models}
        return {c: updates[c] for c in self.fed.cohort if c in updates}, models

    def _remembered(self, lessons: Iterable[Lesson], asked: list[Lesson]) -> Iterator[Task]:
        """The tasks; of each, what is needed later goes into `asked`: not what pulls it.

        Nor, where models are freed, the model that a client goes on from: its parent's takes its
        place, unless positions are updates.
        """
        tree, store = self.state.tree, self.store
        frees = not store.keep and self.config.position != "updates"
        for task, cluster in lessons:
            start, client = task.start, task.site
            if frees and isinstance(start, Mix) and client in tree.members:
                start = effective_model(tree.path(client)[:-1], store, self.state.mixing)
            asked.append((replace(task, start=start, pulls=()), cluster))
            yield task

    def first(self) -> Iterator[Lesson]:
        """The first training of newcomers: from where a descent of the tree leads them."""
        fed, tree = self.fed, self.state.tree
        new = [client for client in fed.cohort if client not in tree.members]
        for client, descent in (search_down(tree, self.store, new, fed) if new else {}).items():
            clusters = tuple(descent) or (tree.root,)
            if fed.has_scores:
                self.suited[client] = clusters[-1]
            path = Path(clusters, None, self.store, self.state.mixing)
            yield fed.task(client, self.rules.start(path, self.config)), None

    def usual(self) -> Iterator[Lesson]:
        """The training of clients in the tree; siblings in a row, so that one mean serves them."""
        tree, fed = self.state.tree, self.fed
        # Who is not asked keeps its model, unless models are freed: then it has its start's.
        clients = [c for c in tree.clients if not fed.may_miss or c in fed.asked]
        samples = training_sets(tree, self.state.shared.pools, fed.owned, clients)
        for parent in dict.fromkeys(tree.parent[client] for client in clients):
            children = (tree.root,) if parent is None else tree.children[parent]
            siblings_mean = as_vector(blend(self.store, dict.fromkeys(children, 1.0)))
            for client in children:
                if client in samples:
                    yield from self.lessons_of(client, samples[client], siblings_mean)
                    self.store.take(client)

    def lessons_of(
        self, client: NodeId, samples: Samples, siblings_mean: Vector
    ) -> Iterator[Lesson]:
        """Once for all clusters on the path (`onepass`), or once for each of them (`cascade`)."""
        tree, fed = self.state.tree, self.fed
        path = path_of(self.state, client)
        clusters = path.clusters
        if self.config.propagation == "onepass" or not clusters:
            pulls = self.rules.pulls(
                tree, path, [client, *clusters][-1], siblings_mean, self.config
            )
            start = self.rules.start(path, self.config)
            yield fed.task(client, start, samples, pulls=pulls), None
            return
        for cluster, batches in zip(clusters, divided(fed.local.batches, len(clusters))):
            pulls = self.rules.pulls(tree, path, cluster, siblings_mean, self.config)
            task = fed.task(
                client,
                self.store[cluster],
                samples,
                pulls=pulls,
                batches=batches,
                purpose=f"train for {cluster}",
            )
            yield task, cluster


def moved_by_updates(
    state: SofaState, tree: Tree, models: Models, updates: Updates, fed: Federation
) -> dict[NodeId, Vector]:
    """The clusters of which not all clients trained: they move by what the others learned.

        x_j ← x_j + Σ w_u (x_u − s_u)

    over the clients u that trained, s_u being what they started from. `models` has the mean of x_u.
    If all clients train, that is the cluster's model: what sets clients apart cancels in it. If
    only some train, it does not, and the mean would depend on who was asked. Buffers, such as
    running variances, are means in any case.
    """
    moved: dict[NodeId, Vector] = {}
    for cluster in state.tree.clusters:
        below = tree.clients_of(cluster) if cluster in tree.parent else ()
        trained = [client for client in below if client in updates]
        if not trained or len(trained) == len(below):
            continue
        starts = mean_of_mixes([updates[c].start for c in trained], [fed.size(c) for c in trained])
        before = state.params[cluster]
        moved[cluster] = models[cluster].clone()
        n = fed.engine.num_trainable
        moved[cluster][:n] += before[:n] - starts[:n]
    return moved


def mean_of_mixes(models: Sequence[Model], weights: Sequence[float]) -> Vector:
    """The weighted mean of mixes of the same few models, each of which is read once."""
    shares = IdentityDict[float]()
    for model, weight in zip(models, weights):
        parts = model if isinstance(model, Mix) else Mix((model,), (1.0,))
        for part, share in zip(parts.models, parts.weights):
            shares[part] = shares.get(part, 0.0) + weight * share / sum(parts.weights)
    return as_vector(Mix(tuple(shares), tuple(shares.values())))


def warm_up(fed: Federation) -> dict[NodeId, Update]:
    """Train every client that is asked alone, all from the same start."""
    start = fed.initial()
    outcomes = fed.train([fed.task(client, start) for client in fed.cohort])
    heard = answered(fed.cohort, outcomes)
    if not heard:
        raise RunError("no client answered in the warm-up, so there is no model to begin with")
    return {client: Update(start, outcome) for client, outcome in heard.items()}


def path_of(state: SofaState, client: NodeId) -> Path:
    """The path of a client in the tree."""
    return Path(state.tree.path(client)[:-1], client, state.params, state.mixing)


def divided(batches: int, parts: int) -> list[int]:
    """`batches` in `parts` shares as equal as can be, none empty."""
    ends = [batches * part // parts for part in range(parts + 1)]
    return [max(1, b - a) for a, b in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class Path:
    """The models that know one client, coarse to fine.

    Attributes:
        clusters: The clusters from the root down to the client's parent.
        client: The client, or None for a newcomer that has no model yet.
        models: The models x of (at least) these nodes.
        mixing: The mixing weights a of the nodes below the root.
    """

    clusters: tuple[NodeId, ...]
    client: NodeId | None
    models: Models
    mixing: Mixing = field(default_factory=Mixing)


def mix_path(path: Path, config: SofaConfig) -> Model:
    """What the client stands for: m_u = (1 − a_u) m_j + a_u x_u, or m_j if it is new."""
    client = [] if path.client is None else [path.client]
    return effective_model((*path.clusters, *client), path.models, path.mixing)


def effective_model(path: Sequence[NodeId], models: Models, mixing: Mixing) -> Mix:
    """What the last node of a path stands for, as a mix of the models on the path."""
    root, *below = path
    shares = {root: 1.0}
    for node in below:
        a = mixing.of(node)
        shares = {above: (1 - a) * share for above, share in shares.items()} | {node: a}
    return blend(models, shares)


def start_from_own(path: Path, config: SofaConfig) -> Model:
    """Go on from the client's own model x_u; a newcomer starts from the lowest cluster it found."""
    return path.models[path.clusters[-1] if path.client is None else path.client]


def serve_own(path: Path, config: SofaConfig) -> Model:
    """Serve the client's own model x_u."""
    assert path.client is not None
    return path.models[path.client]


def blend(models: Models, weights: Mapping[NodeId, float]) -> Mix:
    """The weighted mean of the models named in `weights`; those of weight 0 are left out."""
    used = {node: weight for node, weight in weights.items() if weight}
    return Mix(tuple(models[node] for node in used), tuple(used.values()))


def pulls_on_client(
    tree: Tree, path: Path, cluster: NodeId, siblings_mean: Vector, config: SofaConfig
) -> list[Pull]:
    """Terms (2) and (3) of the objective for a client x that trains for the cluster j.

    β_j ‖x − x_j‖² belongs to every training, α_j / |C_j| Σ ‖x − x_v‖² over the siblings v to that
    for the parent. The gradient of the latter is that of α_j ‖x − m‖² − α_j / |C_j| ‖x − x_u‖²,
    where m (`siblings_mean`) is the mean of all of C_j and x_u the client's model of the round
    before: so one new model per cluster serves all its clients.
    """
    models, client = path.models, path.client
    assert client is not None
    level = tree.level[cluster]
    to_parent = Pull(models[cluster], value_at_level(config.pull_parent, level))
    if cluster != tree.parent[client]:
        return [to_parent]
    alpha = value_at_level(config.pull_siblings, level)
    size = len(tree.children[cluster])
    return [to_parent, Pull(siblings_mean, alpha), Pull(models[client], -alpha / size)]
