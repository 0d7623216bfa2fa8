"""Who no longer fits where it is, by loss: at once, before it trains for the wrong cluster.

SHAPE goes by what clients have learned, so it cannot answer before they have. But a client knows
that its data have changed as soon as the model it is about to train on contradicts them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.hierarchy import Losses, Models, parent_of
from sofa_fl.topology.clustering.membership import with_prunes
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, Split

Limits = Mapping[NodeId, float]  # how much a model may lose for a client


def find_contradicted(
    tree: Tree, models: Models, losses: Losses, margin: float, fed: Federation
) -> dict[NodeId, float]:
    """The clients whose parent's model loses more than it did, by `margin`; and what it may lose.

    Only those who are asked in this round can notice, and only those to whom something is new.
    Beside clusters a client goes by its own model: above it is that of all, which suits new data as
    little as the old.
    """
    if math.isinf(margin):
        return {}
    clients = [c for c in tree.clients if c in fed.asked and fed.has_news(c)]
    if not clients:
        return {}
    above = {tree.parent[cluster] for cluster in tree.clusters}
    judges = [c if tree.parent[c] in above else parent_of(tree, c) for c in clients]
    limits = {c: losses[c][judge] + margin for c, judge in zip(clients, judges)}
    scores = fed.held_out([(c, models[judge]) for c, judge in zip(clients, judges)], sent=True)
    return {c: limits[c] for c, score in zip(clients, scores) if score.loss > limits[c]}


def look_around(
    tree: Tree, models: Models, clients: Sequence[NodeId], fed: Federation
) -> dict[NodeId, dict[NodeId, float]]:
    """The way down from the root along the models that lose least for each client.

    From cluster to cluster as long as that is better; with the loss of each on the way.
    """
    if tree.root in tree.members:
        return {client: {} for client in clients}
    scores = fed.held_out([(client, models[tree.root]) for client in clients])
    ways = {client: {tree.root: score.loss} for client, score in zip(clients, scores)}
    going = dict.fromkeys(clients, tree.root)
    while going:
        asks = [
            (client, child)
            for client, node in going.items()
            for child in tree.children[node]
            if child not in tree.members
        ]
        scores = fed.held_out([(client, models[node]) for client, node in asks])
        best: dict[NodeId, tuple[float, NodeId]] = {}
        for (client, node), score in zip(asks, scores):
            best[client] = min(best.get(client, (score.loss, node)), (score.loss, node))
        going = {
            client: node
            for client, (loss, node) in best.items()
            if loss < ways[client][going[client]]
        }
        for client, node in going.items():
            ways[client][node] = best[client][0]
    return ways


def find_moves(tree: Tree, ways: Losses, limits: Limits) -> list[Edit]:
    """A client moves to the end of its way if it can live there; else it leaves with its like.

    Those of one cluster whom no model in the tree suits become a cluster of their own beside it,
    unless nobody else would be left: then the cluster as a whole has changed, and will learn.
    """
    edits: list[Edit] = []
    homeless: dict[NodeId, list[NodeId]] = {}
    for client, way in ways.items():
        if not way:
            continue
        end, loss = list(way.items())[-1]
        parent = parent_of(tree, client)
        if loss <= limits[client]:
            edits += [Graft(client, end)] if end != parent else []
        else:
            homeless.setdefault(parent, []).append(client)
    next_id, moved = tree.next_id, {e.node for e in edits if isinstance(e, Graft)}
    for parent, clients in homeless.items():
        arrived = [e.node for e in edits if isinstance(e, Graft) and e.onto == parent]
        others = [n for n in tree.children[parent] if n not in moved and n not in clients] + arrived
        if others and all(n in tree.members for n in others):
            into = (NodeId(next_id), NodeId(next_id + 1))
            edits.append(Split(parent, into, (tuple(sorted(others)), tuple(sorted(clients)))))
            next_id += 2
    return with_prunes(tree, edits) if edits else []
