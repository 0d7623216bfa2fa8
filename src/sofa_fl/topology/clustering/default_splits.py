"""Our rule for splits: DMAC proposes parts of a cluster, and losses decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sofa_fl.topology.clustering.config import ShapeConfig
from sofa_fl.topology.clustering.default_edits import (
    ERRORS,
    MUCH,
    NOTABLE,
    known_below,
    mean_and_error,
    sample_counts,
)
from sofa_fl.topology.clustering.dmac import FEW, dmac
from sofa_fl.topology.clustering.evidence import Evidence, Question
from sofa_fl.topology.clustering.separation import student, without_noise
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, splits_of

TENTH = 0.1  # of what clients lose: a part is made for no less

Part = tuple[NodeId, ...]  # children of a cluster, to become one
Children = dict[NodeId, list[NodeId]]  # of a cluster, and the clients below each


def find_splits(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
    """Put together the children of a cluster that DMAC sees as one.

    For every cluster, DMAC looks at the clients below it as they are now, as `sofa.dmac` says. What
    it is certain of, as in the first tree, becomes a part: one that is of no use costs nothing,
    since how far it goes its own way is chosen by its losses. Other clients that it sees as one
    must gain by a model of their own; so must all where DMAC is never certain (`can_be_certain`).
    """
    families = families_of(tree, evidence)
    evidence.losses(about_parents(families), more=True)  # which tells held-out losses as well
    least = NOTABLE * evidence.blind_loss  # no part gains more than its clients lose
    proposed = {
        cluster: groups_of_clients(below, evidence)
        if lost_by(lone_clients(below), cluster, evidence).max(initial=0.0) > least
        else []
        for cluster, below in families.items()
    }
    gaining = parts_that_gain(proposed, families, evidence)
    others = {cluster: below for cluster, below in families.items() if not gaining[cluster]}
    beside = beside_clusters(others, evidence)
    splits: dict[NodeId, list[Part]] = {}
    for cluster, children in families.items():  # parents before children
        parts = gaining[cluster] or suited(cluster, children, evidence) or beside[cluster]
        taken = {child for part in parts for child in part}
        rest = tuple(child for child in tree.children[cluster] if child not in taken)
        if parts and rest and tree.parent[cluster] is not None:  # nothing stays between
            parts.append(rest)
        parts = parts or outermost(certain_parts(children, evidence))
        if parts:
            splits[cluster] = parts
    return splits_of(tree, splits)


def foresee_splits(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Question]:
    """What `find_splits` asks about where no part gains: what clients' parents lose for them."""
    return about_parents(families_of(tree, evidence))


def prepare_splits(tree: Tree, evidence: Evidence, config: ShapeConfig) -> None:
    """Build the trees that `find_splits` looks at whatever models lose; none that take long."""
    for children in families_of(tree, evidence).values() if can_be_certain(evidence) else ():
        if sum(map(len, children.values())) <= FEW:
            certain_tree(children, evidence)


def about_parents(families: Mapping[NodeId, Children]) -> list[Question]:
    """What clients lose by the models of their parents."""
    return [(c, (cluster,)) for cluster, below in families.items() for c in lone_clients(below)]


def families_of(tree: Tree, evidence: Evidence) -> dict[NodeId, Children]:
    """The clusters that can be split, and their children below which clients can be asked."""
    below = known_below(tree, evidence)
    families = {
        cluster: {child: below[child] for child in tree.children[cluster] if child in below}
        for cluster in tree.clusters
    }
    return {cluster: children for cluster, children in families.items() if len(children) > 2}


def groups_of_clients(children: Children, evidence: Evidence) -> list[Part]:
    """The sets of several clients, not of all children, that DMAC sees as one; outer ones first.

    DMAC looks at what differs by more than noise (`without_noise`).
    """
    lone = set(lone_clients(children))
    if len(lone) < 2:
        return []
    config = replace(evidence.dmac, certain=False)
    tree = dmac(without_noise(space_of(children, evidence)), config)
    return [part for part in parts_of(tree, children) if lone.issuperset(part)]


def certain_parts(children: Children, evidence: Evidence) -> list[Part]:
    """The sets of several clients, or of several clusters, that DMAC is certain of; outer first.

    Clients that moved in this round are where their old siblings are.
    """
    if not can_be_certain(evidence) or any(child in evidence.moved for child in children):
        return []
    lone = set(lone_clients(children))
    parts = parts_of(certain_tree(children, evidence), children)
    return [part for part in parts if lone.isdisjoint(part) or lone.issuperset(part)]


def can_be_certain(evidence: Evidence) -> bool:
    """Whether the run's DMAC tells groups from chance: by gaps, without those that may be chance.

    The paper's rule joins everybody in the end, and so every tree has clusters.
    """
    return evidence.dmac.certain and evidence.dmac.increase is None


def certain_tree(children: Children, evidence: Evidence) -> Tree:
    """The tree that DMAC builds of the clients below some children; it is built once."""
    space, trees = space_of(children, evidence), evidence.space.trees
    if space.clients not in trees:
        trees[space.clients] = dmac(space, evidence.dmac)
    return trees[space.clients]


def space_of(children: Children, evidence: Evidence) -> Space:
    """The space of the clients below some children."""
    space = evidence.space
    clients = tuple(client for below in children.values() for client in below)
    rows = [space.row_of[client] for client in clients]
    positions, weights = space.positions[rows], space.weights[rows]
    return replace(space, clients=clients, positions=positions, weights=weights)


def parts_of(tree: Tree, children: Children) -> list[Part]:
    """The clusters of a tree that are sets of several of the children, not of all; outer first."""
    parts = list[Part]()
    for cluster in tree.clusters[1:]:  # parents before children
        inside = set(tree.clients_of(cluster))
        part = tuple(sorted(c for c, below in children.items() if inside.issuperset(below)))
        is_union = len(inside) == sum(len(children[child]) for child in part)
        if is_union and 1 < len(part) < len(children):
            parts.append(part)
    return parts


def parts_that_gain(
    proposed: Mapping[NodeId, Sequence[Part]],
    families: Mapping[NodeId, Children],
    evidence: Evidence,
    least: float = NOTABLE,
) -> dict[NodeId, list[Part]]:
    """The parts of clusters that gain by being one; what is inside of one that gains stays in it.

    Outer parts are asked about first, those of all clusters at once, then those inside of parts
    that do not gain. Parts are of clients, of whom it is known what they lose by the cluster.
    """
    found: dict[NodeId, list[Part]] = {cluster: [] for cluster in proposed}
    left = dict(proposed)
    while outer := {cluster: outermost(parts) for cluster, parts in left.items() if parts}:
        questions = [
            question
            for cluster, parts in outer.items()
            for part in parts
            if may_gain(part, cluster, evidence, least)
            for question in questions_of(part, cluster, families[cluster])
        ]
        evidence.losses(questions)
        for cluster, parts in outer.items():
            children = families[cluster]
            gaining = [part for part in parts if is_gain(part, cluster, children, evidence, least)]
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


def suited(cluster: NodeId, children: Children, evidence: Evidence) -> list[Part]:
    """The clients whom the cluster's model suits, as one part, if it is worse than none for some.

    One client that contradicts many need not stand out by where it is, and it spoils their model.
    """
    lone = lone_clients(children)
    losses = evidence.losses([(client, (cluster,)) for client in lone], more=True)
    stay = sorted(c for c, loss in zip(lone, losses) if loss <= evidence.blind_loss)
    return [tuple(stay)] if 2 <= len(stay) < len(lone) else []


def beside_clusters(
    families: Mapping[NodeId, Children], evidence: Evidence
) -> dict[NodeId, list[Part]]:
    """The clients beside clusters, as one part, if they gain much by a model without these.

    DMAC need not see them as one: what they have in common is that they are in no cluster. But the
    model above them has learned from the clusters, too, and these may contradict it.
    """
    lone = {cluster: tuple(sorted(lone_clients(below))) for cluster, below in families.items()}
    beside = {k: [part] if 2 <= len(part) < len(families[k]) else [] for k, part in lone.items()}
    return parts_that_gain(beside, families, evidence, MUCH)


def is_gain(
    part: Part, cluster: NodeId, children: Children, evidence: Evidence, least: float = NOTABLE
) -> bool:
    """Whether the clients of a part lose clearly less by its mean model than by the cluster's.

    Clearly: by a tenth of what they lose, since a part that gains little now loses in the end, when
    it has learned from its own samples only. And by more than chance: by two standard errors if it
    is much, else by Student's t, which asks for more where there are few clients.
    """
    clients = [client for child in part for client in children[child]]
    if not may_gain(clients, cluster, evidence, least):
        return False
    by_part, by_cluster = evidence.losses(questions_of(part, cluster, children)).reshape(2, -1)
    counts, unit = sample_counts(evidence, clients), evidence.blind_loss
    gain, error = mean_and_error(by_cluster - by_part, counts)
    if gain <= max(least * unit, TENTH * float(np.average(by_cluster, weights=counts))):
        return False
    errors = ERRORS if gain > MUCH * unit else student(len(clients) - 1)
    return gain > errors * error


def may_gain(
    clients: Sequence[NodeId], cluster: NodeId, evidence: Evidence, least: float = NOTABLE
) -> bool:
    """Whether clients lose enough by the cluster's model to gain by another: none loses below 0."""
    losses, counts = lost_by(clients, cluster, evidence), sample_counts(evidence, clients)
    return float(np.average(losses, weights=counts)) > least * evidence.blind_loss


def lost_by(clients: Sequence[NodeId], cluster: NodeId, evidence: Evidence) -> Floats:
    """What clients lose by a cluster's model."""
    return evidence.losses([(client, (cluster,)) for client in clients])


def questions_of(part: Part, cluster: NodeId, children: Children) -> list[Question]:
    """What the clients of a part lose by the part's mean model, and then by the cluster's."""
    clients = [client for child in part for client in children[child]]
    return [(client, nodes) for nodes in (part, (cluster,)) for client in clients]


def lone_clients(children: Children) -> list[NodeId]:
    """The children that are clients."""
    return [child for child, below in children.items() if below == [child]]
