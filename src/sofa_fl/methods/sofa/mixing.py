"""How much every node keeps of its own model: the mixing weights a, chosen by held-out loss.

What a node stands for is its own model x, mixed with what its parent stands for:

    m_root = x_root,    m_u = (1 − a_u) m_j + a_u x_u    for a child u of j

With a_u = 0 everywhere that is one model for all, with a_u = 1 at a client it is training alone.
A client serves m_u, and goes on from it. A mixture is judged as a mixture: its own held-out loss
decides, not those of its ingredients. All levels are asked about in one exchange, so a node's
weight is chosen given those that the nodes above it had in the round before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sofa_fl.models.flat import Mix, Model, Vector, as_vector
from sofa_fl.topology.space import Floats
from sofa_fl.topology.tree import NodeId, Tree

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)  # what a may be

Models = Mapping[NodeId, Vector]


@dataclass(frozen=True, slots=True)
class Mixing:
    """The mixing weights of a tree.

    Attributes:
        weights: a of every node but the root, when its clients were last asked.
        missed: For how many rounds a client has not been asked since, if for any.
        costs: What a node would lose by taking a quarter of its parent's when its clients were last
            asked; negative if it gains. As fractions of the loss of a constant prediction.
        idle: For how many rounds in a row nobody has gained anything by a cluster, if for any;
            rounds in which none of its clients was asked do not count.
    """

    weights: Mapping[NodeId, float] = field(default_factory=dict)
    missed: Mapping[NodeId, int] = field(default_factory=dict)
    costs: Mapping[NodeId, float] = field(default_factory=dict)
    idle: Mapping[NodeId, int] = field(default_factory=dict)

    def of(self, node: NodeId) -> float:
        """How much a node keeps of its own model in this round.

        Of what sets a client apart from its parent, a is left after a round, whether the client
        trained in it or not: while it does not, its parent learns.
        """
        return self.weights.get(node, 1.0) ** (1 + self.missed.get(node, 0))

    def selfish(self, least: float) -> frozenset[NodeId]:
        """The nodes that would lose clearly by taking anything from their parents."""
        return frozenset(node for node, cost in self.costs.items() if cost > least)

    def after(self, before: Tree, after: Tree) -> Mixing:
        """The weights after a change of the tree: a client that moved stands for its new parent."""
        moved = {c for c in after.clients if after.parent[c] != before.parent.get(c)}
        kept = {node: a for node, a in self.weights.items() if node in after.parent}
        same = {c for c in moved if c in before.parent and stands_still(c, before, after, self)}
        return Mixing(
            {**kept, **dict.fromkeys(moved - same, 0.0)},
            {c: rounds for c, rounds in self.missed.items() if c in after.members},
            {n: cost for n, cost in self.costs.items() if n in after.parent and n not in moved},
            {k: rounds for k, rounds in self.idle.items() if k in after.parent},
        )


def stands_still(client: NodeId, before: Tree, after: Tree, mixing: Mixing) -> bool:
    """Whether a client's new parent was above it all along: then what it stands for is the same.

    Only clusters that nobody gained from were pruned between the two.
    """
    path = before.path(client)[:-1]
    return after.parent[client] in path and path[-1] not in after.parent


def effective_model(path: Sequence[NodeId], models: Models, mixing: Mixing) -> Mix:
    """What the last node of a path stands for, as a mix of the models on the path."""
    root, *below = path
    shares = {root: 1.0}
    for node in below:
        a = mixing.of(node)
        shares = {above: (1 - a) * share for above, share in shares.items()} | {node: a}
    return blend(models, shares)


def blend(models: Models, weights: Mapping[NodeId, float]) -> Mix:
    """The weighted mean of the models named in `weights`; those of weight 0 are left out."""
    used = {node: weight for node, weight in weights.items() if weight}
    return Mix(tuple(models[node] for node in used), tuple(used.values()))


def mixtures(
    tree: Tree, models: Models, mixing: Mixing, asked: Collection[NodeId]
) -> dict[tuple[NodeId, NodeId], list[Model]]:
    """By client and node of its path: what the node stands for with each of `WEIGHTS`."""
    stands_for: dict[NodeId, Vector] = {tree.root: models[tree.root]}
    choices: dict[NodeId, list[Model]] = {}
    heard = {node for client in tree.clients if client in asked for node in tree.path(client)}
    for node in tree.walk():
        if (parent := tree.parent[node]) is not None and node in heard:
            above, own = stands_for[parent], models[node]
            choices[node] = [_mixture(above, own, a) for a in WEIGHTS]
            if node not in tree.members:
                stands_for[node] = as_vector(_mixture(above, own, mixing.of(node)))
    return {
        (client, node): choices[node]
        for client in tree.clients
        if client in asked
        for node in tree.path(client)[1:]
    }


def _mixture(parent: Model, own: Vector, a: float) -> Model:
    """(1 − a) · parent + a · own."""
    if a in (0.0, 1.0):
        return own if a else parent
    return Mix((as_vector(parent), own), (1 - a, a))


def weigh(
    tree: Tree,
    before: Mixing,
    table: Mapping[tuple[NodeId, NodeId], Floats],
    samples: Mapping[NodeId, int],
    asked: Collection[NodeId],
    steadiness: float,
    least: float = 0.02,
    unit: float = 1.0,
    unlike: Collection[NodeId] = (),
) -> Mixing:
    """Choose the weights that lose least; those who were not asked keep theirs.

    `table` has the losses of `mixtures`. A cluster goes by all its clients together. Siblings have
    few held-out samples each, so their losses are shrunk towards the mean of all. What costs more
    than `least` of `unit`, the loss of a constant prediction, counts as clear. Clients that are
    `unlike` their siblings go by their own losses.
    """
    weights = {node: before.weights.get(node, 1.0) for node in tree.parent if node != tree.root}
    costs = {node: cost for node, cost in before.costs.items() if node in tree.parent}
    rows: dict[NodeId, list[tuple[Floats, int]]] = {}
    for (client, node), losses in table.items():
        rows.setdefault(node, []).append((losses, samples[client]))
    for parent in tree.clusters:
        children = [node for node in tree.children[parent] if node in rows]
        lone = [node for node in children if node in tree.members and node not in unlike]
        clusters = [node for node in children if node not in tree.members]
        for siblings in (lone, clusters, *([node] for node in children if node in unlike)):
            if not siblings:
                continue
            counts = np.array([sum(num for _, num in rows[n]) for n in siblings], dtype=float)
            means = np.stack(
                [sum(num * losses for losses, num in rows[n]) / c for n, c in zip(siblings, counts)]
            )
            losses = _steadied(means, counts, steadiness)
            weights |= dict(zip(siblings, np.take(WEIGHTS, losses.argmin(axis=1)).tolist()))
            quarter = (losses[:, WEIGHTS.index(0.75)] - losses[:, -1]) / unit
            costs |= dict(zip(siblings, quarter.tolist()))
    missed = {c: 1 + before.missed.get(c, 0) for c in tree.clients if c not in asked}
    idle = {
        cluster: rounds
        for cluster in tree.clusters
        if (rounds := before.idle.get(cluster, 0) + (cluster in rows))
        and _is_idle(cluster, tree, weights, costs, least)
    }
    return Mixing(weights, missed, costs, idle)


def _is_idle(
    cluster: NodeId,
    tree: Tree,
    weights: Mapping[NodeId, float],
    costs: Mapping[NodeId, float],
    least: float,
) -> bool:
    """Whether a cluster stands for its parent, or all below it would lose by taking from it.

    A cluster of clients that all take nothing is not above others: they may be alike, and each have
    enough samples of its own.
    """
    children = tree.children[cluster]
    is_above = not tree.members.issuperset(children)
    would_lose = all(costs.get(child, 0.0) > least for child in children)
    return weights.get(cluster) == 0 or (is_above and would_lose)


def _steadied(losses: Floats, counts: Floats, samples: float) -> Floats:
    """Shrink each node's losses towards the mean of its siblings, as if by `samples` more.

    A client holds out few samples, and a model that is better by chance must not win.
    """
    mean = np.average(losses, axis=0, weights=counts)
    return np.asarray((counts[:, None] * losses + samples * mean) / (counts[:, None] + samples))
