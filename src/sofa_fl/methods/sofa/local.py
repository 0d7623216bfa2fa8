"""Line 4 of Algorithm 6: what every client trains, from where, on what, pulled where."""

from __future__ import annotations

from collections.abc import Iterator

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import Pull, Task, answered
from sofa_fl.errors import RunError
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.averages import Update
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.mixing import blend
from sofa_fl.methods.sofa.paper import divided
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.models.flat import Vector, as_vector
from sofa_fl.sharing import training_sets
from sofa_fl.topology.tree import NodeId, value_at_level

Lesson = tuple[Task, NodeId | None]  # a training, and the cluster that it is for (None: for all)


def warm_up(fed: Federation) -> dict[NodeId, Update]:
    """Train every client that is asked alone, all from the same start."""
    start = fed.initial()
    outcomes = fed.train([fed.task(client, start) for client in fed.cohort])
    heard = answered(fed.cohort, outcomes)
    if not heard:
        raise RunError("no client answered in the warm-up, so there is no model to begin with")
    return {client: Update(start, outcome) for client, outcome in heard.items()}


def local_update(state: SofaState, config: SofaConfig, fed: Federation) -> dict[NodeId, Update]:
    """Train all clients that are asked; the updates of those that answered."""
    lessons = list(lessons_of(state, config, fed))
    outcomes = fed.train([task for task, _ in lessons])
    updates: dict[NodeId, Update] = {}
    for (task, cluster), outcome in zip(lessons, outcomes):
        if outcome is not None:
            taught = dict(updates[task.site].taught) if task.site in updates else {}
            taught |= {} if cluster is None else {cluster: outcome.params}
            updates[task.site] = Update(task.start, outcome, taught)
    return {client: updates[client] for client in fed.cohort if client in updates}


def lessons_of(state: SofaState, config: SofaConfig, fed: Federation) -> Iterator[Lesson]:
    """What newcomers train, from the root's model, and then the clients of the tree."""
    tree, models = state.tree, state.models
    for client in fed.cohort:
        if client not in tree.members:
            yield fed.task(client, models[tree.root]), None
    clients = [client for client in tree.clients if client in fed.asked]
    samples = training_sets(tree, state.shared.pools, fed.owned, clients)
    for parent in dict.fromkeys(tree.parent[client] for client in clients):
        children = (tree.root,) if parent is None else tree.children[parent]
        siblings_mean = as_vector(blend(models, dict.fromkeys(children, 1.0)))
        for client in children:
            if client in samples:
                yield from _lessons(state, client, samples[client], siblings_mean, config, fed)


def _lessons(
    state: SofaState,
    client: NodeId,
    samples: Samples,
    siblings_mean: Vector,
    config: SofaConfig,
    fed: Federation,
) -> Iterator[Lesson]:
    """Once for all clusters on the path (`onepass`), or once for each of them (`cascade`)."""
    *clusters, _ = state.tree.path(client)
    if config.propagation == "onepass" or not clusters:
        start = state.models[client] if config.start == "own" else state.effective(client)
        pulls = pulls_on(state, client, [client, *clusters][-1], siblings_mean, config)
        yield fed.task(client, start, samples, pulls=pulls), None
        return
    for cluster, batches in zip(clusters, divided(fed.local.batches, len(clusters))):
        pulls = pulls_on(state, client, cluster, siblings_mean, config)
        task = fed.task(
            client,
            state.models[cluster],
            samples,
            pulls=pulls,
            batches=batches,
            purpose=f"train for {cluster}",
        )
        yield task, cluster


def pulls_on(
    state: SofaState, client: NodeId, cluster: NodeId, siblings_mean: Vector, config: SofaConfig
) -> list[Pull]:
    """Terms (2) and (3) of the objective for a client x that trains for the cluster j.

    β_j ‖x − x_j‖² belongs to every training, α_j / |C_j| Σ ‖x − x_v‖² over the siblings v to that
    for the parent. The gradient of the latter is that of α_j ‖x − m‖² − α_j / |C_j| ‖x − x_u‖²,
    where m (`siblings_mean`) is the mean of all of C_j and x_u the client's model of the round
    before: so one new model per cluster serves all its clients.
    """
    tree, models = state.tree, state.models
    level = tree.level[cluster]
    to_parent = Pull(models[cluster], value_at_level(config.pull_parent, level))
    if cluster != tree.parent[client]:
        return [to_parent]
    alpha = value_at_level(config.pull_siblings, level)
    size = len(tree.children[cluster])
    return [to_parent, Pull(siblings_mean, alpha), Pull(models[client], -alpha / size)]
