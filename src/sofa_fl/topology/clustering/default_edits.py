"""Our rules of SHAPE: which nodes to graft, merge, split and prune.

They only look and return edits; `edit.apply` changes the tree.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.config import ShapeConfig
from sofa_fl.topology.clustering.kmeans import partitions
from sofa_fl.topology.clustering.separation import PartSeparation
from sofa_fl.topology.geometry.node_positions import Floats, NodePositions
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, Merge, Prune, Split
from sofa_fl.topology.tree.tree_arrays import Rows

EVERYTHING = Candidates()


def find_grafts(
    tree: Tree, space: Space, config: ShapeConfig, candidates: Candidates = EVERYTHING
) -> list[Edit]:
    """Move nodes that are clearly nearer to another cluster on the level of their parent.

    A parent is taken without the node, so that no node holds itself in place.
    """
    nodes = space.locate(tree)
    edits: list[Edit] = []
    for parents in levels(nodes):
        # An only child stays: pruning takes care of its parent.
        children = children_of(nodes, parents)
        children = children[nodes.num_children[nodes.arrays.parents[children]] > 1]
        children = candidates.grafts(space, nodes, children, parents, config.tolerance)
        rest, rest_variances = nodes.parents_without(children)
        now = space.paired_distances(
            nodes.positions[children], rest, nodes.variances[children], rest_variances
        )
        distances = space.distances(
            nodes.positions[children],
            nodes.positions[parents],
            nodes.variances[children],
            nodes.variances[parents],
        )
        distances[nodes.arrays.parents[children][:, None] == parents[None, :]] = np.inf
        least = distances.min(axis=1)
        moves = least * (1 + config.tolerance) < now
        nearest = parents[distances.argmin(axis=1)]
        edits += [Graft(*ids(nodes, *move)) for move in as_pairs(children[moves], nearest[moves])]
    return edits


def find_merges(
    tree: Tree, space: Space, config: ShapeConfig, candidates: Candidates = EVERYTHING
) -> list[Edit]:
    """Merge sibling clusters that are near, nearest first, unless they are two for good reason.

    Good reasons: together they would be split again, or they are set apart.
    """
    nodes = space.locate(tree)
    edits: list[Edit] = []
    merged: set[int] = set()
    a, b, distances = sibling_pairs(space, nodes)
    near = distances <= config.merge * space.scale
    for pair in as_pairs(*candidates.merges(space, nodes, a[near], b[near])):
        if not merged.isdisjoint(pair):
            continue
        children = [children_of(nodes, np.array([row])) for row in pair]
        both = np.concatenate(children)
        wide = space.incoherence(nodes.positions[both], nodes.weights[both]) > config.split
        if not wide and not PartSeparation(space, nodes, children).set_apart():
            merged |= set(pair)
            edits.append(Merge(ids(nodes, *pair), NodeId(tree.next_id + len(edits))))
    return edits


def find_splits(
    tree: Tree, space: Space, config: ShapeConfig, candidates: Candidates = EVERYTHING
) -> list[Edit]:
    """Split clusters whose children lie too wide apart and fall into parts that stand out.

    At most one part may be a child alone: a child is always coherent, and a cluster that is mere
    noise would else be peeled child by child.
    """
    nodes, arrays = space.locate(tree), tree.arrays
    numbers = {
        row: range(2, 1 + min(config.max_parts, (arrays.num_children[row] + 1) // 2))
        for row in incoherent(space, nodes, config.split)
    }
    edits: list[Edit] = []
    next_id = tree.next_id
    # A compact tree has fewer clusters than clients, and any split of it leaves at most as many.
    # Where nothing prunes, this keeps grafts and splits from growing the tree for ever.
    room = len(tree.clients) - len(tree.clusters)
    for row, parts_allowed in candidates.splits(space, nodes, numbers).items():
        for parts in partitions(nodes, arrays.children(row), parts_allowed):
            added = len(parts) - (row > 0)
            num_alone = sum(len(part) == 1 for part in parts)
            if added <= room and num_alone <= 1 and PartSeparation(space, nodes, parts).stand_out():
                edits.append(split_edit(nodes, row, parts, next_id))
                next_id, room = next_id + len(parts), room - added
                break
    return edits


def find_prunes(tree: Tree, *_: object) -> list[Edit]:
    """Remove clusters with fewer than two children, the lowest first, wherever clients are.

    Algorithm 3: |C(P)| = 1. Chosen: a cluster without children goes too.
    """
    stands_for: dict[NodeId, int] = dict.fromkeys(tree.members, 1)  # 0 if nothing is left of it
    edits: list[Edit] = []
    for cluster in reversed(tree.clusters):
        left = sum(stands_for[child] for child in tree.children[cluster])
        stands_for[cluster] = min(left, 1)
        if left < 2:
            edits.append(Prune(cluster))
    return edits


def ids(nodes: NodePositions, *rows: int) -> tuple[NodeId, ...]:
    """The ids of nodes by row."""
    return tuple(NodeId(node) for node in nodes.arrays.nodes[list(rows)].tolist())


def as_pairs(a: Rows, b: Rows) -> Iterator[tuple[int, int]]:
    """The rows of `a` and `b` two by two."""
    return zip(a.tolist(), b.tolist())


def levels(nodes: NodePositions) -> list[Rows]:
    """The clusters that have a position, level by level from the lowest."""
    clusters = np.flatnonzero(nodes.known & ~nodes.arrays.is_client)
    level = nodes.arrays.level[clusters]
    return [clusters[level == each] for each in np.unique(level)]


def children_of(nodes: NodePositions, parents: Rows) -> Rows:
    """The children of these parents that have a position, parent by parent."""
    rows = np.concatenate([nodes.arrays.children(parent) for parent in parents.tolist()])
    return np.asarray(rows[nodes.known[rows]])


def sibling_pairs(space: Space, nodes: NodePositions) -> tuple[Rows, Rows, Floats]:
    """All pairs of sibling clusters and their distances D, parent by parent, the nearest first."""
    pairs = [(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0))]
    for parent in np.flatnonzero(nodes.num_children > 1):
        rows = children_of(nodes, np.array([parent]))
        rows = rows[~nodes.arrays.is_client[rows]]
        positions, variances = nodes.positions[rows], nodes.variances[rows]
        a, b = np.triu_indices(len(rows), 1)
        if len(a):
            distances = space.distances(positions, positions, variances, variances)[a, b]
            order = np.argsort(distances, kind="stable")
            pairs.append((rows[a[order]], rows[b[order]], distances[order]))
    a, b, distances = (np.concatenate(columns) for columns in zip(*pairs))
    return a, b, distances


def incoherent(space: Space, nodes: NodePositions, threshold: float) -> list[int]:
    """The clusters whose children have an incoherence above the threshold.

    A child without a position belongs to no part, so its parent is not split.
    """
    complete = nodes.num_children == nodes.arrays.num_children
    return np.flatnonzero(complete & (space.incoherences(nodes) > threshold)).tolist()


def split_edit(nodes: NodePositions, row: int, parts: tuple[Rows, ...], next_id: int) -> Split:
    """The split of a cluster into these parts of its children."""
    into = tuple(NodeId(next_id + k) for k in range(len(parts)))
    (node,) = ids(nodes, row)
    return Split(node, into, tuple(tuple(sorted(ids(nodes, *part))) for part in parts))
