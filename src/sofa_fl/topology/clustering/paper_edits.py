"""The rules of SHAPE as the paper writes them (Algorithms 2, 4 and 5; 3 is `find_prunes`).

Where the paper is silent, the docstring says what was chosen. All rules decide on the tree as it
is, and then all edits are made. d and D are the distances of `Space.distances`, which are those of
the paper with `linkage="centroid"`.
"""

from __future__ import annotations

import numpy as np

from sofa_fl.topology.clustering.config import ShapeConfig
from sofa_fl.topology.clustering.default_edits import (
    as_pairs,
    distances_between,
    families,
    ids,
    incoherent,
    partitions,
    sibling_pairs,
    split_edit,
)
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, Merge


def paper_grafts(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Algorithm 2: move n_c from n_pre to n_min = argmin d(n, n_c) if d_min (1 + ε) < d_pre.

    d_pre = d(n_pre, n_c), where n_pre includes n_c. Chosen: the candidate parents are the clusters
    on the level of n_pre. ε is `config.tolerance`.
    """
    nodes = space.locate(tree)
    edits: list[Edit] = []
    for children, candidates in families(nodes):
        distances = distances_between(space, nodes, children, candidates)
        is_parent = nodes.arrays.parents[children][:, None] == candidates[None, :]
        d_pre, d_min = distances[is_parent], distances.min(axis=1)
        n_min = candidates[distances.argmin(axis=1)]
        moves = d_min * (1 + config.tolerance) < d_pre
        edits += [Graft(*ids(nodes, *move)) for move in as_pairs(children[moves], n_min[moves])]
    return edits


def paper_merges(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Algorithm 4: merge siblings n_a and n_b with D(n_a, n_b) < τ.

    Chosen: τ is `config.merge` times the scale of the space; clients are not merged; the nearest
    pairs are merged first, and each cluster once in a pass.
    """
    nodes, tau = space.locate(tree), config.merge * space.scale
    edits: list[Edit] = []
    merged: set[int] = set()
    a, b, distances = sibling_pairs(space, nodes)
    for pair in as_pairs(a[distances < tau], b[distances < tau]):
        if merged.isdisjoint(pair):
            merged |= set(pair)
            edits.append(Merge(ids(nodes, *pair), NodeId(tree.next_id + len(edits))))
    return edits


def paper_splits(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Algorithm 5: split n by the first k = 2 … |Succ(n)| with Incoherence(n_j) ≤ θ for all parts.

    θ is `config.split`. Chosen: incoherence is the spread of the children by the scale of the
    space; only a cluster above θ is split ("heterogeneous clusters", the text says); k-means is by
    weight; a cluster of which a child has no position is not split. The root has no parent: it
    stays, above its parts, and is not split into single children, which would change nothing.
    """
    nodes, arrays = space.locate(tree), tree.arrays
    edits: list[Edit] = []
    next_id = tree.next_id
    for n in incoherent(space, nodes, config.split):
        successors = arrays.children(n)
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
