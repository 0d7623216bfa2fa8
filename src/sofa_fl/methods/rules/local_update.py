"""Line 4 of Algorithm 6: what every client trains, from where, on what, pulled where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import Task
from sofa_fl.errors import RunError
from sofa_fl.federation import Federation, answered
from sofa_fl.methods.rules.clusters import Update
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.path import Path, blend
from sofa_fl.methods.rules.rule_set import Rules
from sofa_fl.methods.rules.state import ModelStore, SofaState, search_down
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Model, as_vector
from sofa_fl.sharing import training_sets
from sofa_fl.topology.tree import NodeId

Lesson = tuple[Task, NodeId | None]  # a training, and the cluster that it is for (None: for all)


@dataclass(frozen=True, slots=True)
class LocalUpdate:
    """The local update of a round; it frees clients' old models in `state.params` as it goes."""

    state: SofaState
    rules: Rules
    config: SofaConfig
    fed: Federation

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
        """The tasks; of each, what is needed later goes into `asked`: not what pulls it."""
        for task, cluster in lessons:
            asked.append((replace(task, pulls=()), cluster))
            yield task

    def first(self) -> Iterator[Lesson]:
        """The first training of newcomers: from where a descent of the tree leads them."""
        fed, tree = self.fed, self.state.tree
        new = [client for client in fed.cohort if client not in tree.members]
        for client, descent in (search_down(tree, self.store, new, fed) if new else {}).items():
            clusters = tuple(descent) or (tree.root,)
            path = Path(clusters, None, self.store, self.state.mixing.weights)
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
    mixing, clusters = state.mixing, state.tree.path(client)[:-1]
    return Path(clusters, client, state.params, mixing.weights, mixing.starts.get(client, 0.0))


def divided(batches: int, parts: int) -> list[int]:
    """`batches` in `parts` shares as equal as can be, none empty."""
    ends = [batches * part // parts for part in range(parts + 1)]
    return [max(1, b - a) for a, b in pairwise(ends)]
