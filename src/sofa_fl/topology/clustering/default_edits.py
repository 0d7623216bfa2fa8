"""Our rules of SHAPE: distances propose, losses decide.

A cluster says that its clients can use each other's models. Clients test that on held-out
samples, so an edit is made only if those whom it concerns gain by it, or do not lose.
The rules only look and return edits; `edit.apply` changes the tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sofa_fl.topology.clustering.config import DmacConfig, ShapeConfig
from sofa_fl.topology.clustering.dmac import Nearness, dmac
from sofa_fl.topology.clustering.evidence import Evidence, Question
from sofa_fl.topology.clustering.fast import may_be_clear
from sofa_fl.topology.clustering.separation import Separation, stands_out
from sofa_fl.topology.geometry.principal import without_noise
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, merges_of, splits_of

# Fractions of the blind loss.
GAIN = 0.05  # a client moves for no less
TRIFLE = 0.01  # clusters whose exchange costs no more may merge
MUCH = 0.1  # a difference that is never chance, and worth a cluster of one's own
ERRORS = 2.0  # standard errors above zero that a smaller loss must be
NEAREST = 3  # siblings that a cluster is compared with
FEW = 10  # clients of a cluster whose model depends on each

Part = tuple[NodeId, ...]  # children of a cluster, to become one
Children = dict[NodeId, list[NodeId]]  # of a cluster, and the clients below each


def find_grafts(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
    """Move the clients for whom the model of another cluster clearly loses less than the parent's.

    From the root down, always to the child cluster that loses least; of those on the way, the best.
    """
    clients = known_clients(tree, tree.root, evidence)
    parents = {
        client: parent
        for client in clients
        if (parent := tree.parent[client]) is not None and is_due(client, evidence, config)
    }
    if len(tree.clusters) < 2 or not parents:
        return []

    models = Models(tree, evidence)

    def ask(pairs: Sequence[tuple[NodeId, NodeId]]) -> list[float]:
        questions = [(client, models.without(cluster, client)) for client, cluster in pairs]
        losses: list[float] = evidence.losses(questions, more=True).tolist()
        return losses

    # All at once: asking clients takes an exchange of messages, and evidence remembers.
    first = [cluster for cluster in tree.clusters if tree.parent[cluster] == tree.root]
    ask([*parents.items(), *((client, cluster) for client in parents for cluster in first)])
    now = dict(zip(parents, ask(list(parents.items()))))
    edits: list[Edit] = []
    for client, way in descend(tree, list(parents), ask).items():
        loss, onto = min((loss, node) for node, loss in way.items())
        if loss < now[client] - GAIN * evidence.blind_loss:
            edits.append(Graft(client, onto))
    return edits


class Models:
    """The clusters' models, as nodes to take the mean of."""

    def __init__(self, tree: Tree, evidence: Evidence) -> None:
        known = {cluster: known_clients(tree, cluster, evidence) for cluster in tree.clusters}
        self._whole = {cluster: (cluster,) for cluster in known}  # there may be millions of pairs
        self._few = {c: below for c, below in known.items() if 1 < len(below) <= FEW}

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
    """Merge sibling clusters that can use each other's models, those that lose least first."""
    pairs, times = list[tuple[NodeId, NodeId]](), Counter[NodeId]()
    for a, b, _ in evidence.space.sibling_pairs(tree):  # the nearest first
        if min(times[a], times[b]) < NEAREST:
            times.update((a, b))
            if is_due(NodeId(a + b), evidence, config):
                pairs.append((a, b))
    below = {node: known_clients(tree, node, evidence) for pair in pairs for node in pair}
    questions = [
        (client, (model,)) for a, b in pairs for client in below[a] + below[b] for model in (a, b)
    ]
    losses = asked(evidence, questions)
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


def find_splits(
    tree: Tree, evidence: Evidence, config: ShapeConfig, neighbors: Nearness | None = None
) -> list[Edit]:
    """Put together the children of a cluster that DMAC sees as one, if they gain by that.

    For every cluster, DMAC looks at the clients below it as they are now. A cluster that it finds
    and that consists of several of the children, not of all, becomes a part.
    With the plain `Neighbors` the edits are the same as by default, and it takes longer.
    """
    families = {cluster: known_children(tree, cluster, evidence) for cluster in tree.clusters}
    families = {cluster: children for cluster, children in families.items() if len(children) > 2}
    proposed = {c: proposed_parts(below, evidence, neighbors) for c, below in families.items()}
    splits = parts_that_gain(proposed, families, evidence)
    alone = [(k, (c,)) for c in families if c not in splits for k in lone_clients(families[c])]
    asked(evidence, alone, more=True)  # all at once, as in `find_grafts`
    for cluster, children in families.items():
        parts = splits.get(cluster) or suited(cluster, children, evidence)
        taken = {child for part in parts for child in part}
        rest = tuple(child for child in tree.children[cluster] if child not in taken)
        if parts and rest and tree.parent[cluster] is not None:  # nothing stays between
            parts.append(rest)
        if parts:
            splits[cluster] = parts
    return splits_of(tree, splits)


def proposed_parts(
    children: Children, evidence: Evidence, neighbors: Nearness | None = None
) -> list[Part]:
    """The sets of several children, not all, that are clusters of DMAC; outer ones before inner.

    DMAC looks at what differs by more than noise (`without_noise`).
    Where some of them are on trial, distances tell these from the others and say nothing else.
    """
    if any(child in evidence.on_trial for child in children):
        return []
    space = evidence.space
    clients = tuple(client for below in children.values() for client in below)
    rows = [space.row_of[client] for client in clients]
    positions, weights = space.positions[rows], space.weights[rows]
    some = replace(space, clients=clients, positions=positions, weights=weights)
    if neighbors is None and not may_be_clear([len(below) for below in children.values()], some):
        return []
    tree = dmac(without_noise(some), DmacConfig(certain=False), 0, neighbors)
    parts = list[Part]()
    for cluster in tree.clusters[1:]:  # parents before children
        inside = set(tree.clients_of(cluster))
        part = tuple(child for child, below in children.items() if inside.issuperset(below))
        is_union = len(inside) == sum(len(children[child]) for child in part)
        if is_union and 1 < len(part) < len(children) and is_clear(part, children, some):
            parts.append(tuple(sorted(part)))
    return parts


def parts_that_gain(
    proposed: Mapping[NodeId, Sequence[Part]],
    families: Mapping[NodeId, Children],
    evidence: Evidence,
) -> dict[NodeId, list[Part]]:
    """The parts of clusters that gain by being one; what is inside of one that gains stays in it.

    Outer parts are asked about first, those of all clusters at once, then those inside of parts
    that do not gain.
    """
    splits: dict[NodeId, list[Part]] = {}
    left = dict(proposed)
    while outer := {cluster: outermost(parts) for cluster, parts in left.items() if parts}:
        questions = [
            question
            for cluster, parts in outer.items()
            for part in parts
            for question in questions_of(part, cluster, families[cluster])
        ]
        asked(evidence, questions)
        for cluster, parts in outer.items():
            children = families[cluster]
            gaining = [
                part
                for part in parts
                if is_gain(part, cluster, children, evidence)
                and is_compatible(part, children, evidence)
            ]
            if gaining:
                splits[cluster] = [*splits.get(cluster, ()), *gaining]
            taken = {child for part in gaining for child in part}
            inner = [part for part in left[cluster] if part not in parts]
            left[cluster] = [part for part in inner if taken.isdisjoint(part)]
    return splits


def outermost(parts: Sequence[Part]) -> list[Part]:
    """The parts that are inside of no other, given that no part comes before one around it."""
    found, taken = list[Part](), set[NodeId]()
    for part in parts:
        if taken.isdisjoint(part):
            found.append(part)
            taken |= set(part)
    return found


def is_clear(part: Part, children: Children, space: Space) -> bool:
    """Whether a part stands out clearly, if there are clusters in it: these have trained apart."""
    if all(len(children[child]) == 1 for child in part):
        return True
    rows = {c: np.array([space.row_of[k] for k in below]) for c, below in children.items()}
    test = Separation(space)
    inner = test.within([rows[child] for child in part])
    others = np.concatenate([rows[child] for child in children if child not in part])
    outer = test.between(np.concatenate([rows[child] for child in part]), others)
    return inner is not None and stands_out(inner, outer, test.clearly)


def is_compatible(part: Part, children: Children, evidence: Evidence) -> bool:
    """Whether clusters in a part can learn from the others: their mean loses little more for them.

    A level above clusters that contradict each other would serve nobody.
    """
    if all(len(children[child]) == 1 for child in part):
        return True
    asks = [(client, child) for child in part for client in children[child]]
    questions = [(c, part) for c, _ in asks] + [(c, (child,)) for c, child in asks]
    together, apart = evidence.losses(questions).reshape(2, -1)
    counts = sample_counts(evidence, [client for client, _ in asks])
    return bool(np.average(together - apart, weights=counts) <= MUCH * evidence.blind_loss)


def suited(cluster: NodeId, children: Children, evidence: Evidence) -> list[Part]:
    """The clients whom the cluster's model suits, as one part, if it is worse than none for some.

    One client that contradicts many need not stand out by where it is, and it spoils their model.
    """
    clients = lone_clients(children)
    losses = asked(evidence, [(client, (cluster,)) for client in clients], more=True)
    stay = sorted(c for (c, _), loss in losses.items() if loss <= evidence.blind_loss)
    return [tuple(stay)] if 2 <= len(stay) < len(clients) else []


def is_gain(part: Part, cluster: NodeId, children: Children, evidence: Evidence) -> bool:
    """Whether the clients of a part lose much less by the part's mean model than by the cluster's.

    A part that gains little now loses in the end: it learns from its own samples only.
    """
    clients = [client for child in part for client in children[child]]
    by_part, by_cluster = evidence.losses(questions_of(part, cluster, children)).reshape(2, -1)
    gain = np.average(by_cluster - by_part, weights=sample_counts(evidence, clients))
    return bool(gain > MUCH * evidence.blind_loss)


def questions_of(part: Part, cluster: NodeId, children: Children) -> list[Question]:
    """What the clients of a part lose by the part's mean model, and then by the cluster's."""
    clients = [client for child in part for client in children[child]]
    return [(client, nodes) for nodes in (part, (cluster,)) for client in clients]


def is_loss(more: Floats, counts: Floats, blind_loss: float) -> bool:
    """Whether clients lose by an exchange of models, given by how much more each one loses.

    Below `TRIFLE` they do not, above `MUCH` they do; between, if the mean is above zero by more
    than chance, as the spread over clients tells. `counts` are the samples behind each number.
    """
    mean = float(np.average(more, weights=counts))
    if not TRIFLE * blind_loss < mean <= MUCH * blind_loss:
        return mean > MUCH * blind_loss
    if len(more) < 2:
        return False
    shares = counts / counts.sum()
    variance = float((shares**2 * (more - mean) ** 2).sum()) * len(more) / (len(more) - 1)
    return bool(mean > ERRORS * variance**0.5)


def is_due(node: NodeId, evidence: Evidence, config: ShapeConfig) -> bool:
    """Whether it is a node's turn: each looks around every so many rounds, not all at once."""
    return (node + evidence.round) % config.every == 0


def known_clients(tree: Tree, node: NodeId, evidence: Evidence) -> list[NodeId]:
    """The clients below a node that can be asked."""
    return [client for client in tree.clients_of(node) if client in evidence.space.row_of]


def known_children(tree: Tree, cluster: NodeId, evidence: Evidence) -> Children:
    """The children of a cluster below which are clients that can be asked, and these clients."""
    below = {child: known_clients(tree, child, evidence) for child in tree.children[cluster]}
    return {child: clients for child, clients in below.items() if clients}


def lone_clients(children: Children) -> list[NodeId]:
    """The children that are clients."""
    return [child for child, below in children.items() if below == [child]]


def sample_counts(evidence: Evidence, clients: Sequence[NodeId]) -> Floats:
    """The samples that each client is asked on."""
    return np.array([evidence.samples(client) for client in clients], dtype=np.float64)


def asked(
    evidence: Evidence, questions: Sequence[Question], *, more: bool = False
) -> dict[Question, float]:
    """The losses by question, each asked once."""
    each = list(dict.fromkeys(questions))
    return dict(zip(each, evidence.losses(each, more=more).tolist()))
