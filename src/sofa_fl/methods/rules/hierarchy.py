"""Models on a tree: what a cluster is the mean of, what new nodes inherit, whom to trust."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.models.flat import Vector, mean
from sofa_fl.models.mix import Mix
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, Join, Leave, Merge, Prune, Split
from sofa_fl.topology.tree.mutable_tree import MutableTree, TreeLike

Models = Mapping[NodeId, Vector]
Losses = Mapping[NodeId, Mapping[NodeId, float]]  # held-out loss, by client and node of its path


def above(tree: Tree, client: NodeId) -> tuple[NodeId, ...]:
    """The clusters on a client's path; a client alone stands for its own."""
    return tree.path(client)[:-1] or (client,)


def parent_of(tree: Tree, client: NodeId) -> NodeId:
    return above(tree, client)[-1]


def mean_of(nodes: Sequence[NodeId], tree: TreeLike, models: Models, fed: Federation) -> Vector:
    """The mean of nodes' models, weighted by the samples below them."""
    samples = [sum(fed.size(n) for n in tree.walk(node) if n in tree.members) for node in nodes]
    return mean([models[node] for node in nodes], samples)


def means_up(tree: Tree, models: Models, fed: Federation) -> dict[NodeId, Vector]:
    """The clients' models, and for every cluster the mean of the clients below, by samples.

    From the lowest up, each out of its children's: every model is read once. Clients that have no
    model are left out, and clusters without any other. What is no mean (`guard.aggregate`) is
    taken of all clients below at once.
    """
    found = {client: models[client] for client in tree.clients if client in models}
    samples = {client: fed.size(client) for client in found}
    below: dict[NodeId, list[NodeId]] = {client: [client] for client in found}
    for cluster in reversed(tree.clusters):
        children = [child for child in tree.children[cluster] if child in found]
        if not children:
            continue
        if fed.guard.aggregate == "mean":
            found[cluster] = mean([found[c] for c in children], [samples[c] for c in children])
        else:
            below[cluster] = [client for child in children for client in below[child]]
            found[cluster] = fed.mean({client: found[client] for client in below[cluster]})
        samples[cluster] = sum(samples[child] for child in children)
    return found


def children_mean(tree: Tree, models: Models, node: NodeId) -> Mix:
    """The mean of the models of a node's children, each counting the same."""
    return blend(models, dict.fromkeys(tree.children[node] or (node,), 1.0))


def blend(models: Models, weights: Mapping[NodeId, float]) -> Mix:
    """The mean of the models named in `weights`, weighted so."""
    return Mix(tuple(models[node] for node in weights), tuple(weights.values()))


def inherit(
    tree: Tree, models: Models, edits: Sequence[Edit], fed: Federation
) -> dict[NodeId, Vector]:
    """Models after `edits` of `tree`: a new cluster is the mean of what it is made of.

    A merged cluster is the mean of those merged, a part of a split one the mean of the
    children it takes. No model of a node that stays is changed; a client that joins brings its
    own, among `models`.
    """
    if not edits:
        return dict(models)
    models, draft = dict(models), MutableTree(tree)  # a tree would be checked at every edit
    for edit in edits:
        match edit:
            case Merge(nodes, into):
                models[into] = mean_of(nodes, draft, models, fed)
            case Split(_, into, groups):
                models |= {
                    part: mean_of(group, draft, models, fed) for part, group in zip(into, groups)
                }
            case Prune() | Graft() | Join() | Leave():
                pass
        edit.apply(draft)
    return {node: model for node, model in models.items() if node in draft.parent}


def compare(
    tree: Tree,
    models: Models,
    fed: Federation,
    known: Losses | None = None,
    clients: Collection[NodeId] | None = None,
) -> dict[NodeId, dict[NodeId, float]]:
    """Held-out loss of every model on a client's path; what is `known` is not measured again.

    Only `clients` can be asked, by default all. Of the others, and of those who do not answer,
    what was known is kept; a model that they never met is as good as the next above it.
    """
    known = known or {}
    losses = {
        client: {n: known[client][n] for n in tree.path(client) if n in known.get(client, {})}
        for client in tree.clients
    }
    clients = tree.members if clients is None else clients
    there = [client for client in tree.clients if client in clients]
    asks = [(c, n) for c in there for n in tree.path(c) if n not in losses[c]]
    scores = fed.held_out([(client, models[node]) for client, node in asks])
    for (client, node), score in zip(asks, scores):
        losses[client][node] = score.loss
    return {client: _filled(tree.path(client), losses[client], fed) for client in tree.clients}


def _filled(
    path: Sequence[NodeId], losses: Mapping[NodeId, float], fed: Federation
) -> dict[NodeId, float]:
    """A loss for every node of a path: where there is none, that of the next above."""
    there = {node: loss for node, loss in losses.items() if math.isfinite(loss)}
    if len(there) == len(path):
        return {node: there[node] for node in path}
    last = max(there.values(), default=fed.blind_loss)
    return {node: (last := there.get(node, last)) for node in path}


def steady(tree: Tree, losses: Losses, fed: Federation, samples: float) -> Losses:
    """Losses as if every client had been judged on `samples` more, with its siblings' mean loss.

    What a client holds out is little, and a model that is better by chance must not win; one that
    is better by far, as for a client among others that are not like it, still does.
    """
    families: dict[NodeId | None, list[NodeId]] = {}
    for client in tree.clients:
        families.setdefault(tree.parent[client], []).append(client)
    found: dict[NodeId, dict[NodeId, float]] = {}
    for family in families.values():
        counts = [len(fed.judged_on(client)) for client in family]
        paths = [tree.path(client) for client in family]
        rows = np.array([[losses[path[-1]][node] for node in path] for path in paths])
        mean = np.average(rows, axis=0, weights=counts)
        for path, count, row in zip(paths, counts, rows):
            steadied = (count * row + samples * mean) / (count + samples)
            found[path[-1]] = dict(zip(path, steadied.tolist()))
    return found


def agreement(losses: Mapping[NodeId, float], scale: float) -> dict[NodeId, float]:
    """How much each node counts by the difference of losses: exp(−loss / scale), summing to 1.

    Unlike by `trust`, models that do not contradict a client count alike, however little one
    of them loses: where a client has few classes, next to nothing is easily lost ten times over.
    """
    best = min(losses.values())
    counts = {node: math.exp((best - loss) / scale) for node, loss in losses.items()}
    total = sum(counts.values())
    return {node: count / total for node, count in counts.items()}


def trust(losses: Mapping[NodeId, float], sharpness: float) -> dict[NodeId, float]:
    """How much each node counts: its loss to the power of minus `sharpness`, summing to 1."""
    # Losses near zero all mean "good": below a thousandth they do not outweigh each other.
    # Measured by the best of them, no power of a loss overflows or leaves nothing to divide by.
    floored = {node: max(loss, 1e-3) for node, loss in losses.items()}
    best = min(floored.values())
    counts = {node: (best / loss) ** sharpness for node, loss in floored.items()}
    total = sum(counts.values())
    return {node: count / total for node, count in counts.items()}
