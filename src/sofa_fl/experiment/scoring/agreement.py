"""How well a tree agrees with known groups of its clients, or with the tree of the round before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from sofa_fl.topology.tree import NodeId, Tree


def ari(tree: Tree, groups: Sequence[int]) -> float:
    """The best adjusted Rand index of the tree's cuts with `groups`, one number per client.

    There is a cut for every depth: each client belongs to its ancestor that many steps below the
    root, or, where its path is shorter, to itself. 1 says that one cut is the groups exactly, 0
    that none is better than chance.
    """
    _check(tree, groups)
    return max(adjusted_rand(groups, clusters_at_depth(tree, d)) for d in range(tree.depth + 1))


def adjusted_rand(groups: Sequence[int], clusters: Sequence[int]) -> float:
    """Hubert and Arabie's (1985) index of two partitions: 1 if equal, 0 on average by chance."""
    together, in_groups, in_clusters = map(_pairs, (zip(groups, clusters), groups, clusters))
    if together == in_groups == in_clusters:
        return 1.0
    pairs, chance = len(groups) * (len(groups) - 1), in_groups * in_clusters
    return 2.0 * (together * pairs - chance) / ((in_groups + in_clusters) * pairs - 2 * chance)


def _pairs(labels: Iterable[Hashable]) -> int:
    """The ordered pairs of clients with the same label."""
    return sum(number * (number - 1) for number in Counter(labels).values())


def clusters_at_depth(tree: Tree, depth: int) -> list[int]:
    """The node that every client belongs to, `depth` steps below the root."""
    return [int(path[min(depth, len(path) - 1)]) for path in map(tree.path, tree.clients)]


def purity(tree: Tree, groups: Sequence[int]) -> float:
    """Dendrogram purity (Heller and Ghahramani, 2005) of the tree for `groups`.

    Of two clients of one group, drawn at random, take the smallest cluster with both: the
    fraction of its clients that are of their group, on average. 1 says that every group has
    clusters of its own; without a group of two it is 1 too.
    """
    _check(tree, groups)
    counts = _counts(tree, groups)
    pairs = counts * (counts - 1) / 2  # of clients of one group below a node
    meeting = pairs.copy()  # those that are not below the same child
    for row, up in enumerate(_parent_rows(tree)[1:], 1):
        meeting[up] -= pairs[row]
    total = meeting.sum()
    sizes = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return float((meeting * counts / sizes).sum() / total) if total else 1.0


def fscore(tree: Tree, groups: Sequence[int]) -> float:
    """How well each group is some cluster of the tree, wherever in the tree that is.

    Larsen and Aone's FScore (1999): of every group the highest F1, the harmonic mean of precision
    and recall, of any cluster, on average over the clients; a group of one is its client. 1 says
    that every group is a cluster, be they at the same depth or not; a flat tree has 2 / (1 + k)
    for k groups of one size.
    """
    _check(tree, groups)
    counts = _counts(tree, groups)
    of_group = counts[0]  # the root has all
    overlap = 2 * counts / (counts.sum(axis=1, keepdims=True) + of_group)
    is_client = [node in tree.members for node in tree.walk()]
    overlap[np.ix_(is_client, of_group > 1)] = 0
    return float(overlap.max(axis=0) @ of_group / of_group.sum())


def moved(before: Tree, after: Tree) -> int:
    """How many clients changed their cluster, by parent, whatever the clusters are called.

    Of the clients in both trees, those outside the best matching of the clusters.
    """
    both = [client for client in before.clients if client in after.members]
    if not both:
        return 0
    rows, columns = (
        np.unique([_parent(tree, client) for client in both], return_inverse=True)[1]
        for tree in (before, after)
    )
    overlap = np.zeros((1 + rows.max(), 1 + columns.max()), dtype=np.int64)
    np.add.at(overlap, (rows, columns), 1)
    return len(both) - int(overlap[linear_sum_assignment(overlap, maximize=True)].sum())


def _counts(tree: Tree, groups: Sequence[int]) -> NDArray[np.float64]:
    """The clients of every group below every node, in the order of `tree.walk`, root first."""
    labels = np.unique(np.asarray(groups), return_inverse=True)[1]
    group_of = dict(zip(tree.clients, labels.tolist()))
    parents = _parent_rows(tree)
    counts = np.zeros((len(parents), int(labels.max()) + 1))
    for row, node in enumerate(tree.walk()):
        if node in group_of:
            counts[row, group_of[node]] = 1
    for row in range(len(parents) - 1, 0, -1):
        counts[parents[row]] += counts[row]
    return counts


def _parent_rows(tree: Tree) -> list[int]:
    """Where in `tree.walk` the parent of every node is; -1 for the root."""
    row_of: dict[NodeId | None, int] = {node: row for row, node in enumerate(tree.walk())}
    return [row_of.get(tree.parent[node], -1) for node in tree.walk()]


def _parent(tree: Tree, client: NodeId) -> int:
    """The cluster of a client; one alone in the world is its own."""
    parent = tree.parent[client]
    return client if parent is None else parent


def _check(tree: Tree, groups: Sequence[int]) -> None:
    if len(groups) != len(tree.clients):
        raise ValueError(f"one group per client: {len(tree.clients)} clients, {len(groups)} groups")
