"""The rules of SHAPE as the paper writes them (Algorithms 2, 4 and 5; 3 is `find_prunes`).

Where the paper is silent, the docstring says what was chosen. All rules decide on the tree as it
is, and then all edits are made. d and D are the distances of `Space.distances`, which are those of
the paper with `linkage="centroid"`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import numpy as np
from threadpoolctl import ThreadpoolController

from sofa_fl.topology.clustering.config import ShapeConfig
from sofa_fl.topology.clustering.evidence import Evidence
from sofa_fl.topology.geometry.space import NodePositions, Space
from sofa_fl.topology.tree import NodeId, Rows, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, Merge, Split

BLOCK = 1 << 22  # distances measured at a time


def paper_grafts(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
    """Algorithm 2: move n_c from n_pre to n_min = argmin d(n, n_c) if d_min (1 + ε) < d_pre.

    d_pre = d(n_pre, n_c), where n_pre includes n_c. Chosen: the candidate parents are the clusters
    on the level of n_pre. ε is `config.tolerance`.
    """
    space, nodes = evidence.space, evidence.space.locate(tree)
    edits: list[Edit] = []
    for children, candidates in families(nodes):
        distances = space.node_distances(nodes, children, candidates)
        is_parent = nodes.arrays.parents[children][:, None] == candidates[None, :]
        d_pre, d_min = distances[is_parent], distances.min(axis=1)
        n_min = candidates[distances.argmin(axis=1)]
        moves = d_min * (1 + config.tolerance) < d_pre
        edits += map(Graft, nodes.ids(children[moves]), nodes.ids(n_min[moves]))
    return edits


def paper_merges(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
    """Algorithm 4: merge siblings n_a and n_b with D(n_a, n_b) < τ.

    Chosen: τ is `config.merge` times the scale of the space; clients are not merged; the nearest
    pairs are merged first, and each cluster once in a pass.
    """
    tau = config.merge * evidence.space.scale
    edits: list[Edit] = []
    merged: set[NodeId] = set()
    for n_a, n_b, distance in evidence.space.sibling_pairs(tree):
        if distance < tau and merged.isdisjoint((n_a, n_b)):
            merged |= {n_a, n_b}
            edits.append(Merge((n_a, n_b), NodeId(tree.next_id + len(edits))))
    return edits


def paper_splits(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
    """Algorithm 5: split n by the first k = 2 … |Succ(n)| with Incoherence(n_j) ≤ θ for all parts.

    θ is `config.split`. Chosen: incoherence is the spread of the children by the scale of the
    space; only a cluster above θ is split ("heterogeneous clusters", the text says); k-means is by
    weight; a cluster of which a child has no position is not split. The root has no parent: it
    stays, above its parts, and is not split into single children, which would change nothing.
    """
    space, nodes = evidence.space, evidence.space.locate(tree)
    edits: list[Edit] = []
    next_id = tree.next_id
    for n in incoherent(space, nodes, config.split):
        successors = tree.arrays.children(n)
        most = len(successors) - (n == 0)
        for parts in partitions(nodes, successors, range(2, most + 1)):
            incoherences = [
                space.incoherence(nodes.positions[part], nodes.weights[part]) for part in parts
            ]
            if np.max(incoherences) <= config.split:
                edits.append(split_edit(nodes, n, parts, next_id))
                next_id += len(parts)
                break
    return edits


def families(nodes: NodePositions) -> Iterator[tuple[Rows, Rows]]:
    """For each level of clusters, from the lowest: their children, and these clusters.

    Only of nodes that have a position; the children in blocks, so that the distances of all to all
    fit into memory.
    """
    clusters = np.flatnonzero(nodes.known & ~nodes.arrays.is_client)
    level = nodes.arrays.level[clusters]
    for each in np.unique(level):
        parents = clusters[level == each]
        children = np.concatenate([nodes.children(parent) for parent in parents.tolist()])
        step = max(1, BLOCK // len(parents))
        for start in range(0, len(children), step):
            yield children[start : start + step], parents


def incoherent(space: Space, nodes: NodePositions, threshold: float) -> list[int]:
    """The clusters whose children have an incoherence above the threshold.

    A child without a position belongs to no part, so its parent is not split.
    """
    complete = nodes.num_children == nodes.arrays.num_children
    return np.flatnonzero(complete & (space.incoherences(nodes) > threshold)).tolist()


def partitions(
    nodes: NodePositions, children: Rows, numbers: Iterable[int]
) -> Iterator[tuple[Rows, ...]]:
    """Partition `children` into each of `numbers` parts, in ascending order.

    It stops at a number above that of different positions: k-means cannot tell equal ones apart.
    """
    # Imported here: it would be a fifth of the time that every process takes to start.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    threads = ThreadpoolController()  # knows scikit-learn's too, now that they are loaded
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
        with warnings.catch_warnings(), threads.limit(limits=1):
            # Of positions so near that they are one to k-means.
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = (
                KMeans(k, n_init=4, random_state=0)
                .fit(positions, sample_weight=nodes.weights[children])
                .labels_
            )
        if len(set(labels)) < k:
            return
        yield tuple(children[labels == label] for label in dict.fromkeys(labels))


def split_edit(nodes: NodePositions, row: int, parts: tuple[Rows, ...], next_id: int) -> Split:
    """The split of a cluster into these parts of its children."""
    into = tuple(NodeId(next_id + k) for k in range(len(parts)))
    groups = tuple(tuple(sorted(nodes.ids(part))) for part in parts)
    return Split(NodeId(int(nodes.arrays.nodes[row])), into, groups)
