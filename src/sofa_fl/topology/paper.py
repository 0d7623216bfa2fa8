"""The rules of SHAPE as the paper writes them (Algorithms 2, 4 and 5; 3 is `find_prunes`).

Where the paper is silent, the docstring says what was chosen. A rule decides on the tree as it is,
and all of its edits are applied afterwards. d and D are the distances of `Space.distances`, which
are those of the paper with `linkage="centroid"`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from threadpoolctl import ThreadpoolController

from sofa_fl.topology.config import Operation, ShapeConfig
from sofa_fl.topology.edits import Edit, Graft, merges_of, splits_of
from sofa_fl.topology.space import TIE, NodePositions, Space
from sofa_fl.topology.tree import NodeId, Tree


def paper_grafts(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Algorithm 2: move n_c from n_pre to n_min = argmin d(n, n_c) if d_min (1 + ε) < d_pre.

    d_pre = d(n_pre, n_c), where n_pre includes n_c. Chosen: the candidate parents are the clusters
    on the level of n_pre; of those that are as near, the first. ε is `config.tolerance`.
    """
    nodes = space.locate(tree)
    on_level: dict[int, list[NodeId]] = {}
    for cluster in nodes.known(tree.clusters):
        on_level.setdefault(tree.level[cluster], []).append(cluster)
    edits: list[Edit] = []
    for _, candidates in sorted(on_level.items()):
        for column, n_pre in enumerate(candidates):
            children = nodes.known(tree.children[n_pre])
            distances = nodes.distances(children, candidates)
            d_pre, d_min = distances[:, column], distances.min(axis=1)
            n_min = (distances <= d_min[:, None] * (1 + TIE)).argmax(axis=1)
            for k in np.flatnonzero(d_min * (1 + config.tolerance) * (1 + TIE) < d_pre):
                edits.append(Graft(children[k], candidates[n_min[k]]))
    return edits


def paper_merges(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Algorithm 4: merge siblings n_a and n_b with D(n_a, n_b) < τ.

    Chosen: τ is `config.merge` times the scale of the space; clients are not merged; the nearest
    pairs are merged first, and each cluster once in a pass.
    """
    tau = config.merge * space.scale
    siblings = space.sibling_pairs(tree)
    return merges_of(tree, ((n_a, n_b) for n_a, n_b, d in siblings if d * (1 + TIE) < tau))


def paper_splits(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Algorithm 5: split n by the first k = 2 … |Succ(n)| with Incoherence(n_j) ≤ θ for all parts.

    θ is `config.split`. Chosen: incoherence is the spread of the children by the scale of the
    space; only a cluster above θ is split ("heterogeneous clusters", the text says); k-means is by
    weight; a cluster of which a child has no position is not split. The root has no parent: it
    stays, above its parts, and is not split into single children, which would change nothing.
    """
    nodes, theta = space.locate(tree), config.split * (1 + TIE)
    splits: dict[NodeId, tuple[tuple[NodeId, ...], ...]] = {}
    for n in tree.clusters:
        successors = nodes.known(tree.children[n])
        is_complete = len(successors) == len(tree.children[n])
        if not is_complete or nodes.incoherence(successors) <= theta:
            continue
        most = len(successors) - (n == tree.root)
        for parts in partitions(nodes, successors, range(2, most + 1)):
            if all(nodes.incoherence(part) <= theta for part in parts):
                splits[n] = parts
                break
    return splits_of(tree, splits)


def partitions(
    nodes: NodePositions, children: Sequence[NodeId], numbers: Iterable[int]
) -> Iterator[tuple[tuple[NodeId, ...], ...]]:
    """Partition `children` into each of `numbers` parts, in ascending order.

    Stop at the number of different positions: k-means cannot separate equal ones.
    """
    # Imported here, since it would add a fifth to the start of every process.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    threads = ThreadpoolController()  # now that scikit-learn is loaded, its threads too
    rows = np.array(nodes.rows(children))
    positions = nodes.positions[rows] - nodes.positions[rows].mean(axis=0)
    # Rounded to nine digits, and in an order that depends on the positions alone: k-means must not
    # depend on the last bit of a mean, or on the numbers of the clients.
    positions = (positions / (np.abs(positions).max() or 1.0)).round(9)
    order = np.lexsort(positions.T[::-1])
    positions, weights = positions[order], nodes.weights[rows[order]]
    num_different = 1 + int((np.diff(positions, axis=0) != 0).any(axis=1).sum())
    for k in numbers:
        if k > num_different:
            return
        with warnings.catch_warnings(), threads.limit(limits=1):
            # K-means warns if positions are so near that it takes them for one.
            warnings.simplefilter("ignore", ConvergenceWarning)
            means = KMeans(k, n_init=4, random_state=0).fit(positions, sample_weight=weights)
        parts: dict[int, list[NodeId]] = {}
        for at, label in zip(order, means.labels_):
            parts.setdefault(label, []).append(children[at])
        if len(parts) < k:
            return
        yield tuple(tuple(sorted(part)) for part in parts.values())


PaperRule = Callable[[Tree, Space, ShapeConfig], list[Edit]]
PAPER_RULES: Mapping[Operation, PaperRule] = MappingProxyType(
    {"graft": paper_grafts, "merge": paper_merges, "split": paper_splits}
)
