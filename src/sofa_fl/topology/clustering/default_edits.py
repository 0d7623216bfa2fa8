"""Our rules of SHAPE: distances propose, losses decide.

A cluster says that its clients can use each other's models. Clients test that on held-out
samples, so an edit is made only if those whom it concerns gain by it, or do not lose.
The rules only look and return edits; `edit.apply` changes the tree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import numpy as np

from sofa_fl.topology.clustering.config import ShapeConfig
from sofa_fl.topology.clustering.evidence import Evidence, Question
from sofa_fl.topology.geometry.space import Floats
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, merges_of

# Fractions of the blind loss.
GAIN = 0.05  # a client moves for no less
HARMLESS = 0.01  # clusters whose exchange costs no more may merge
NOTABLE = 0.02  # no part is made that gains no more
MUCH = 0.1  # a difference that is never chance
ERRORS = 2.0  # standard errors above zero that a smaller loss must be
NEAREST = 3  # siblings that a cluster is compared with
FEW_CLIENTS = 10  # clients of a cluster whose model depends on each


def find_grafts(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
    """Move the clients for whom the model of another cluster clearly loses less than the parent's.

    From the root down, always to the child cluster that loses least; of those on the way, the best.
    The clusters above its own are not among them: a client has their models already.
    """
    parents, models = whose_turn_it_is(tree, evidence, config), ClusterModels(tree, evidence)

    def ask(pairs: Sequence[tuple[NodeId, NodeId]]) -> list[float]:
        questions = [(client, models.without(cluster, client)) for client, cluster in pairs]
        losses: list[float] = evidence.losses(questions, more=True).tolist()
        return losses

    least = {
        client: loss - GAIN * evidence.blind_loss
        for client, loss in zip(parents, ask(list(parents.items())))
    }
    movable = [client for client in parents if least[client] > 0]  # no model loses less than 0
    edits: list[Edit] = []
    for client, way in descend(tree, movable, ask).items():
        above = tree.path(client)
        others = [(loss, node) for node, loss in way.items() if node not in above]
        loss, onto = min(others, default=(math.inf, client))
        if loss < least[client]:
            edits.append(Graft(client, onto))
    return edits


def foresee_grafts(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Question]:
    """What `find_grafts` asks about first: the parents of those whose turn it is."""
    models = ClusterModels(tree, evidence)
    parents = whose_turn_it_is(tree, evidence, config)
    return [(client, models.without(parent, client)) for client, parent in parents.items()]


def whose_turn_it_is(tree: Tree, evidence: Evidence, config: ShapeConfig) -> dict[NodeId, NodeId]:
    """The clients that look for another cluster in this round, if there is any; their parents."""
    if len(tree.clusters) < 2:
        return {}
    return {
        client: parent
        for client in known_below(tree, evidence).get(tree.root, ())
        if (parent := tree.parent[client]) is not None and is_due(client, evidence, config)
    }


class ClusterModels:
    """The clusters' models, as nodes to take the mean of."""

    def __init__(self, tree: Tree, evidence: Evidence) -> None:
        below = known_below(tree, evidence).items()
        self._whole = {c: (c,) for c in tree.clusters}  # there may be millions of pairs
        self._few = {node: clients for node, clients in below if 1 < len(clients) <= FEW_CLIENTS}

    def without(self, cluster: NodeId, client: NodeId) -> tuple[NodeId, ...]:
        """The cluster's model, or what others made of it, if the client is one of few in it.

        A model has learned the samples of those who made it. To be compared with models that have
        never seen them, it must do without.
        """
        few = self._few.get(cluster, ())
        if client not in few:
            return self._whole[cluster]
        return tuple(other for other in few if other != client)


def descend(
    tree: Tree,
    clients: Sequence[NodeId],
    ask: Callable[[Sequence[tuple[NodeId, NodeId]]], Iterable[float]],
) -> dict[NodeId, dict[NodeId, float]]:
    """Go down from the root, always to the child cluster that loses least for each client.

    `ask` has the losses of clusters for clients, pair by pair. Returns the clusters on the way,
    without the root, and their losses.
    """
    ways: dict[NodeId, dict[NodeId, float]] = {client: {} for client in clients}
    below = {c: [n for n in tree.children[c] if n not in tree.members] for c in tree.clusters}
    at = dict.fromkeys(clients, tree.root)
    while pairs := [
        (client, child) for client, node in at.items() for child in below.get(node, ())
    ]:
        best: dict[NodeId, tuple[float, NodeId]] = {}
        for (client, child), loss in zip(pairs, ask(pairs)):
            if client not in best or (loss, child) < best[client]:
                best[client] = loss, child
        at = {client: child for client, (_, child) in best.items()}
        for client, (loss, child) in best.items():
            ways[client][child] = loss
    return ways


def find_merges(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
    """Merge sibling clusters that can use each other's models, those that lose least first.

    Those that were told apart after they had trained together are not merged again.
    """
    apart = {pair for into in evidence.told_apart for pair in combinations(sorted(into), 2)}
    pairs, times = list[tuple[NodeId, NodeId]](), Counter[NodeId]()
    for a, b, _ in evidence.space.sibling_pairs(tree):  # the nearest first
        if min(times[a], times[b]) < NEAREST:
            times.update((a, b))
            if is_due(NodeId(a + b), evidence, config) and (min(a, b), max(a, b)) not in apart:
                pairs.append((a, b))
    below = known_below(tree, evidence)
    questions: list[Question] = [
        (client, (model,)) for a, b in pairs for client in below[a] + below[b] for model in (a, b)
    ]
    losses = dict(zip(questions, evidence.losses(questions).tolist()))
    costs = dict[tuple[NodeId, NodeId], float]()
    for a, b in pairs:
        more = [
            np.array([losses[client, (other,)] - losses[client, (node,)] for client in below[node]])
            for node, other in ((a, b), (b, a))
        ]
        counts = [sample_counts(evidence, below[node]) for node in (a, b)]
        if not any(is_loss(m, n, evidence.blind_loss) for m, n in zip(more, counts)):
            costs[a, b] = max(float(np.average(m, weights=n)) for m, n in zip(more, counts))
    return merges_of(tree, sorted(costs, key=lambda pair: (costs[pair], pair)))


def is_loss(more: Floats, counts: Floats, blind_loss: float) -> bool:
    """Whether clients lose by an exchange of models, given by how much more each one loses.

    Below `HARMLESS` they do not, above `MUCH` they do; between, if the mean is above zero by more
    than chance, as the spread over clients tells. `counts` are the samples behind each number.
    """
    mean, error = mean_and_error(more, counts)
    if not HARMLESS * blind_loss < mean <= MUCH * blind_loss:
        return mean > MUCH * blind_loss
    return mean > ERRORS * error


def mean_and_error(numbers: Floats, counts: Floats) -> tuple[float, float]:
    """The mean of clients' numbers by samples, and its standard error, as their spread tells."""
    mean, n = float(np.average(numbers, weights=counts)), len(numbers)
    if n < 2:
        return mean, math.inf
    shares = counts / counts.sum()
    variance = float((shares**2 * (numbers - mean) ** 2).sum()) * n / (n - 1)
    return mean, math.sqrt(variance)


def is_due(node: NodeId, evidence: Evidence, config: ShapeConfig) -> bool:
    """Whether it is a node's turn: each looks around every so many rounds, not all at once."""
    return (node + evidence.round) % config.every == 0


def known_below(tree: Tree, evidence: Evidence) -> dict[NodeId, list[NodeId]]:
    """The clients that can be asked, in the order of the tree, below every node that has any."""
    below: dict[NodeId, list[NodeId]] = {}
    for client in tree.clients_of(tree.root):
        if client in evidence.space.row_of:
            for node in tree.path(client):
                below.setdefault(node, []).append(client)
    return below


def sample_counts(evidence: Evidence, clients: Sequence[NodeId]) -> Floats:
    """The samples that each client is asked on."""
    return np.array([evidence.samples(client) for client in clients], dtype=np.float64)
