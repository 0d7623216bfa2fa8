"""SHAPE: reshape the tree to where its clients are now (the paper's Algorithms 2 to 5).

`find_*` only look and return edits; `edit.apply` changes. All thresholds are fractions of the
space's scale, so they mean the same for small and large models, early and late.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, Split, apply_all
from sofa_fl.topology.space import Body, Space, pick, without
from sofa_fl.topology.tree import NodeId, Tree

Operation = Literal["graft", "merge", "split", "prune"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeConfig:
    """When the tree changes.

    Attributes:
        operations: What SHAPE may do; nothing leaves the tree as DMAC built it.
        tolerance: A node moves if another parent is nearer by this factor more than 1 (epsilon).
        merge: Sibling clusters nearer than this fraction of the scale become one (tau).
        split: A cluster whose children spread wider than this fraction of the scale is split,
            if it falls into parts that do not (theta).
        max_parts: A split makes at most this many parts.
    """

    operations: tuple[Operation, ...] = ("graft", "merge", "split", "prune")
    tolerance: Annotated[float, Ge(0)] = 0.1
    merge: Annotated[float, Ge(0)] = 1.2
    split: Annotated[float, Ge(0)] = 0.82
    max_parts: Annotated[int, Ge(2)] = 8


def shape(tree: Tree, space: Space, config: ShapeConfig) -> tuple[Tree, list[Edit]]:
    """Sweep over the tree until nothing changes; return the tree and the edits that led there.

    A second call on the same places returns no edits. Should the sweeps run in a circle, the
    tree returned is the tightest in that circle, and so the same from anywhere in it.
    """
    trail, edits = [tree], [list[Edit]()]
    seen = {form(tree): 0}
    while True:
        done = sweep(trail[-1], space, config)
        after = apply_all(trail[-1], done)
        trail.append(after)
        edits.append(done)
        if (first := seen.setdefault(form(after), len(trail) - 1)) < len(trail) - 1:
            circle = range(first, len(trail) - 1)
            end = min(circle, key=lambda step: (_looseness(trail[step], space), form(trail[step])))
            return trail[end], [edit for step in edits[: end + 1] for edit in step]


def sweep(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Graft, merge, split and prune once, each on the tree that the one before left."""
    edits: list[Edit] = []
    for operation, find in (
        ("graft", find_grafts),
        ("merge", find_merges),
        ("split", find_splits),
        ("prune", find_prunes),
    ):
        if operation in config.operations:
            found = find(tree, space, config)
            tree = apply_all(tree, found)
            edits += found
    return edits


def find_grafts(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Nodes that are clearly nearer to another cluster on the level of their parent.

    A parent is taken without the node, so that no node holds itself in place.
    """
    bodies = space.locate(tree)
    edits: list[Edit] = []
    for level in range(1, tree.depth):  # the root is alone on its level
        parents = _settled(bodies, tree.at_level(level))
        for column, here in enumerate(parents):
            nodes = _settled(bodies, tree.children[here])
            if len(parents) < 2 or len(nodes) < 2:
                continue  # nowhere to go, or an only child: pruning takes care of its parent
            distances = space.between(pick(bodies, nodes), pick(bodies, parents))
            distances[:, column] = np.inf
            for node, row in zip(nodes, distances):
                rest = without(bodies[here], bodies[node])
                now = space.between([bodies[node]], [rest])[0, 0]
                nearest = int(row.argmin())
                if row[nearest] * (1 + config.tolerance) < now:
                    edits.append(Graft(node, parents[nearest]))
    return edits


def find_merges(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Sibling clusters that are near, nearest first, unless together they would have to split."""
    bodies = space.locate(tree)
    edits: list[Edit] = []
    for parent in tree.clusters:
        children = _settled(bodies, tree.children[parent])
        clusters = [node for node in children if node not in tree.members]
        if len(clusters) < 2:
            continue
        distances = space.between(pick(bodies, clusters), pick(bodies, clusters))
        taken: set[int] = set()
        upper = np.triu_indices(len(clusters), 1)
        for pair in np.argsort(distances[upper], kind="stable"):
            a, b = int(upper[0][pair]), int(upper[1][pair])
            if distances[a, b] > config.merge * space.scale:
                break
            together = tree.children[clusters[a]] + tree.children[clusters[b]]
            loose = space.incoherence(pick(bodies, _settled(bodies, together))) > config.split
            if taken & {a, b} or loose:
                continue
            taken |= {a, b}
            into = NodeId(tree.next_id + len(edits))
            edits.append(Merge((clusters[a], clusters[b]), into))
    return edits


def find_splits(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Clusters whose children lie too wide apart and fall into coherent parts.

    At most one part may be a child alone: a child is always coherent, and a cluster that is mere
    noise would else be peeled child by child.
    """
    bodies = space.locate(tree)
    edits: list[Edit] = []
    next_id = tree.next_id
    # A compact tree has fewer clusters than clients, and any split of it leaves at most as many.
    # Where nothing prunes, this keeps grafts and splits from growing the tree for ever.
    room = len(tree.clients) - len(tree.clusters)
    for cluster in tree.clusters:
        children = _settled(bodies, tree.children[cluster])
        if space.incoherence(pick(bodies, children)) <= config.split:
            continue
        if len(children) < len(tree.children[cluster]):
            continue  # an empty child belongs to no part: pruning takes care of it
        for groups in _partitions(children, pick(bodies, children), config.max_parts):
            added = len(groups) - (cluster != tree.root)
            if added > room:
                break
            alone = sum(len(group) == 1 for group in groups)
            if alone <= 1 and all(
                space.incoherence(pick(bodies, group)) <= config.split for group in groups
            ):
                into = tuple(NodeId(next_id + k) for k in range(len(groups)))
                next_id, room = next_id + len(groups), room - added
                edits.append(Split(cluster, into, groups))
                break
    return edits


def find_prunes(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Clusters with fewer than two children, the lowest first."""
    stands_for: dict[NodeId, int] = dict.fromkeys(tree.members, 1)  # 0 if nothing is left of it
    edits: list[Edit] = []
    for cluster in reversed(tree.clusters):
        left = sum(stands_for[child] for child in tree.children[cluster])
        stands_for[cluster] = min(left, 1)
        if left < 2:
            edits.append(Prune(cluster))
    return edits


def _settled(bodies: Mapping[NodeId, Body], nodes: Iterable[NodeId]) -> list[NodeId]:
    """The nodes that are somewhere: a cluster whose children have all been grafted is nowhere."""
    return [node for node in nodes if node in bodies]


def _partitions(
    children: Sequence[NodeId], bodies: Sequence[Body], max_parts: int
) -> Iterator[tuple[tuple[NodeId, ...], ...]]:
    """K-means partitions of `children` into 2, 3, … parts, fewer than there are children."""
    places = np.stack([body.place for body in bodies])
    places = places - places.mean(axis=0)
    # To nine digits, and in an order that depends on the places alone: neither the last bit of
    # a mean nor a client's number must steer k-means.
    places = np.round(places / (np.abs(places).max() or 1.0), 9)
    order = np.lexsort(places.T[::-1])
    weights = np.array([body.weight for body in bodies])[order]
    distinct = len(np.unique(places, axis=0))
    for k in range(2, min(max_parts, len(children) - 1, distinct) + 1):
        with warnings.catch_warnings():  # of places so near that they are one to k-means
            warnings.simplefilter("ignore", ConvergenceWarning)
            means = KMeans(k, n_init=4, random_state=0).fit(places[order], sample_weight=weights)
        groups: dict[int, list[NodeId]] = {}
        for row, label in zip(order, means.labels_):
            groups.setdefault(int(label), []).append(children[row])
        if len(groups) < k:
            return
        yield tuple(tuple(sorted(group)) for group in groups.values())


def form(tree: Tree) -> int:
    """A number that is the same for trees that differ only in the ids of their clusters."""
    forms: dict[NodeId, int] = {}
    for node in reversed(list(tree.walk())):
        below = tree.children[node]
        leaf = node in tree.members
        forms[node] = hash((node,)) if leaf else hash(tuple(sorted(forms[c] for c in below)))
    return forms[tree.root]


def _looseness(tree: Tree, space: Space) -> tuple[float, ...]:
    """Squared distances of the nodes to their parents, summed level by level from the clients up.

    To nine digits, so that the order of a sum does not matter. The levels above the clients
    tell apart trees in which the same clients share a parent.
    """
    bodies = space.locate(tree)
    totals = [0.0] * tree.depth
    for node, parent in tree.parent.items():
        if parent is not None and node in bodies:
            apart = float(space.between([bodies[node]], [bodies[parent]])[0, 0])
            totals[tree.level[node]] += bodies[node].weight * apart**2
    return tuple(float(f"{total:.9g}") for total in totals)


def count_edits(edits: Sequence[Edit]) -> Mapping[Operation, int]:
    """How many of each operation."""
    kinds: dict[Operation, type[Edit]] = {
        "graft": Graft,
        "prune": Prune,
        "merge": Merge,
        "split": Split,
    }
    return {name: sum(isinstance(edit, kind) for edit in edits) for name, kind in kinds.items()}
