"""Our rule for splits: DMAC proposes parts of a cluster, and losses decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sofa_fl.topology.clustering.config import DmacConfig, ShapeConfig
from sofa_fl.topology.clustering.default_edits import (
    ERRORS,
    MUCH,
    NOTABLE,
    asked,
    known_clients,
    mean_and_error,
    sample_counts,
)
from sofa_fl.topology.clustering.dmac import Nearness, dmac
from sofa_fl.topology.clustering.evidence import Evidence, Question
from sofa_fl.topology.clustering.fast import may_be_clear
from sofa_fl.topology.clustering.separation import Separation, stands_out, student, without_noise
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, splits_of

TENTH = 0.1  # of what clients lose: a part is made for no less

Part = tuple[NodeId, ...]  # children of a cluster, to become one
Children = dict[NodeId, list[NodeId]]  # of a cluster, and the clients below each


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
    gaining = parts_that_gain(proposed, families, evidence)
    alone = [(k, (c,)) for c in families if not gaining[c] for k in lone_clients(families[c])]
    asked(evidence, alone, more=True)  # all at once, as in `find_grafts`
    splits: dict[NodeId, list[Part]] = {}
    for cluster, children in families.items():  # parents before children
        parts = gaining[cluster] or suited(cluster, children, evidence)
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
    found: dict[NodeId, list[Part]] = {cluster: [] for cluster in proposed}
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
            found[cluster] += gaining
            taken = {child for part in gaining for child in part}
            inner = [part for part in left[cluster] if part not in parts]
            left[cluster] = [part for part in inner if taken.isdisjoint(part)]
    return found


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
    """Whether the clients of a part lose clearly less by its mean model than by the cluster's.

    Clearly: by a tenth of what they lose, since a part that gains little now loses in the end, when
    it has learned from its own samples only. And by more than chance: by two standard errors if it
    is much, else by Student's t, which asks for more where there are few clients.
    """
    clients = [client for child in part for client in children[child]]
    by_part, by_cluster = evidence.losses(questions_of(part, cluster, children)).reshape(2, -1)
    counts, unit = sample_counts(evidence, clients), evidence.blind_loss
    gain, error = mean_and_error(by_cluster - by_part, counts)
    if gain <= max(NOTABLE * unit, TENTH * float(np.average(by_cluster, weights=counts))):
        return False
    errors = ERRORS if gain > MUCH * unit else student(len(clients) - 1)
    return gain > errors * error


def questions_of(part: Part, cluster: NodeId, children: Children) -> list[Question]:
    """What the clients of a part lose by the part's mean model, and then by the cluster's."""
    clients = [client for child in part for client in children[child]]
    return [(client, nodes) for nodes in (part, (cluster,)) for client in clients]


def known_children(tree: Tree, cluster: NodeId, evidence: Evidence) -> Children:
    """The children of a cluster below which are clients that can be asked, and these clients."""
    below = {child: known_clients(tree, child, evidence) for child in tree.children[cluster]}
    return {child: clients for child, clients in below.items() if clients}


def lone_clients(children: Children) -> list[NodeId]:
    """The children that are clients."""
    return [child for child, below in children.items() if below == [child]]
