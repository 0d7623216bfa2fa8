"""Our rules of SHAPE: which nodes to graft, merge, split and prune.

They only look and return edits; `edit.apply` changes the tree.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.config import ShapeConfig
from sofa_fl.topology.clustering.separation import PartSeparation
from sofa_fl.topology.geometry.space import Floats, NodePositions, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, Merge, Prune, Split
from sofa_fl.topology.tree.tree_arrays import Rows


def partitions(
    nodes: NodePositions, children: Rows, numbers: Iterable[int]
) -> Iterator[tuple[Rows, ...]]:
    """Partition `children` into each of `numbers` parts, in ascending order.

    It stops at a number above that of different positions: k-means cannot tell equal ones apart.
    """
    positions = nodes.positions[children]
    positions = positions - positions.mean(axis=0)
    # To nine digits, and in an order that depends on the positions alone: neither the last bit of
    # a mean nor a client's number must steer k-means.
    positions = (positions / (np.abs(positions).max() or 1.0)).round(9)
    order = np.lexsort(positions.T[::-1])
    positions, children = positions[order], children[order]
    num_different = 1 + int((np.diff(positions, axis=0) != 0).any(axis=1).sum())
    for k in numbers:
        if k > num_different:
            return
        with warnings.catch_warnings():  # of positions so near that they are one to k-means
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = (
                KMeans(k, n_init=4, random_state=0)
                .fit(positions, sample_weight=nodes.weights[children])
                .labels_
            )
        if len(set(labels)) < k:
            return
        yield tuple(children[labels == label] for label in dict.fromkeys(labels))


EVERYTHING = Candidates()
BLOCK = 1 << 22  # distances measured at a time


def find_grafts(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Move nodes that are clearly nearer to another cluster on the level of their parent.

    A parent is taken without the node, so that no node holds itself in place.
    """
    nodes = space.locate(tree)
    edits: list[Edit] = []
    for children, parents in families(nodes):
        # An only child stays: pruning takes care of its parent.
        children = children[nodes.num_children[nodes.arrays.parents[children]] > 1]
        rest, rest_variances = nodes.parents_without(children)
        now = space.paired_distances(
            nodes.positions[children], rest, nodes.variances[children], rest_variances
        )
        distances = distances_between(space, nodes, children, parents)
        distances[nodes.arrays.parents[children][:, None] == parents[None, :]] = np.inf
        moves = distances.min(axis=1) * (1 + config.tolerance) < now
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


def families(nodes: NodePositions) -> Iterator[tuple[Rows, Rows]]:
    """For each level of clusters, from the lowest: their children, and these clusters.

    Only of nodes that have a position; the children in blocks, so that the distances of all to all
    fit into memory.
    """
    clusters = np.flatnonzero(nodes.known & ~nodes.arrays.is_client)
    level = nodes.arrays.level[clusters]
    for each in np.unique(level):
        parents = clusters[level == each]
        children, step = children_of(nodes, parents), max(1, BLOCK // len(parents))
        for start in range(0, len(children), step):
            yield children[start : start + step], parents


def distances_between(space: Space, nodes: NodePositions, a: Rows, b: Rows) -> Floats:
    """The distances D of all nodes in `a` to all in `b`."""
    return space.distances(
        nodes.positions[a], nodes.positions[b], nodes.variances[a], nodes.variances[b]
    )


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
        a, b = np.triu_indices(len(rows), 1)
        if len(a):
            distances = distances_between(space, nodes, rows, rows)[a, b]
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
