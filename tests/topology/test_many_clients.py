"""Twenty thousand clients: no recursion, no quadratic memory, in any shape of tree.

What would be quadratic does not fit into memory, or not into the patience of a test.
"""

from __future__ import annotations

import numpy as np
import pytest

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.clustering.default_edits import find_merges
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.evidence import DistanceEvidence
from sofa_fl.topology.clustering.shape import find_prunes, shape
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from sofa_fl.topology.edits import Edit, Graft, Prune, apply_all
from tests.topology.strategies import ALL, ids, nested, node, only, space_of
from tests.topology.worlds import made_up

MANY = 20_000


def chain(num_clients: int) -> Tree:
    """Every cluster has one client and the next cluster, the last one two clients."""
    parent: dict[NodeId, NodeId | None] = {node(num_clients): None}
    for client in range(num_clients - 1):
        cluster = num_clients + client
        parent[node(client)] = node(cluster)
        parent[node(cluster + 1)] = node(cluster)
    del parent[node(2 * num_clients - 1)]
    parent[node(num_clients - 1)] = node(2 * num_clients - 2)
    return Tree(parent, ids(*range(num_clients)), 2 * num_clients)


def line(num_clients: int) -> Space:
    return space_of(np.arange(num_clients, dtype=np.float64))


def test_a_chain_is_a_tree() -> None:
    tree = chain(MANY)
    assert tree.depth == MANY - 1
    assert tree.is_compact
    assert len(tree.path(node(MANY - 1))) == MANY
    assert len(tree.clients_of(tree.root)) == MANY
    other = apply_all(tree, [Graft(node(0), tree.clusters[-1])])
    assert other.path(node(0)) == (*tree.path(node(MANY - 1))[:-1], node(0))


def test_a_chain_is_located() -> None:
    """The cluster of client k has the clients from k on, whose mean is in the middle."""
    space, tree = line(MANY), chain(MANY)
    nodes = space.locate(tree)
    clusters = nodes.rows(tree.clusters)
    lowest = np.array(tree.clusters) - MANY
    np.testing.assert_allclose(nodes.positions[clusters, 0], (lowest + MANY - 1) / 2, rtol=1e-12)
    variance = ((MANY - lowest) ** 2 - 1) / 12.0
    np.testing.assert_allclose(nodes.variances[clusters], variance, rtol=1e-9)


def test_a_chain_can_be_edited() -> None:
    tree = chain(2_000)
    after = apply_all(tree, [Graft(node(0), tree.clusters[-1]), Prune(tree.root)])
    assert after.is_compact
    assert after.root == tree.root + 1


def test_a_chain_can_be_shaped() -> None:
    deep = 4000  # no recursion goes as deep; what every cluster is asked for grows with the square
    tree = chain(deep)
    assert find_prunes(tree) == []
    evidence = DistanceEvidence(tree, line(deep))
    assert shape(tree, evidence, only("merge", "prune")) == (tree, [], evidence)


def test_a_star_is_located_and_shaped() -> None:
    tree, space = flat_tree(ids(*range(MANY))), line(MANY)
    nodes = space.locate(tree)
    assert nodes.positions[0, 0] == pytest.approx((MANY - 1) / 2)
    evidence = DistanceEvidence(tree, space)
    assert shape(tree, evidence, only("graft", "merge", "prune")) == (tree, [], evidence)
    assert tree.depth == 1


def stars(num_clusters: int) -> Tree:
    """A root over clusters of two clients."""
    n = 2 * num_clusters
    clusters = [NodeId(n + 1 + k) for k in range(num_clusters)]
    parent: dict[NodeId, NodeId | None] = {node(n): None} | dict.fromkeys(clusters, node(n))
    parent |= {node(client): clusters[client // 2] for client in range(n)}
    return Tree(parent, ids(*range(n)), n + 1 + num_clusters)


def test_of_many_siblings_few_pairs_are_compared() -> None:
    """There are half a million pairs, and a question for each would take minutes."""
    num = 1000
    evidence = made_up(np.repeat(np.arange(float(num)) ** 1.1, 2).tolist(), {})
    merges = find_merges(stars(num), evidence, ALL)
    assert len(evidence.asked) <= 3 * num * 8, "for each pair, two models for four clients"
    assert len(merges) > num / 4


def test_a_thousand_edits_are_checked_once() -> None:
    tree = stars(30_000)
    clusters = tree.children[tree.root]
    edits: list[Edit] = [Graft(node(2 * k), clusters[k + 1]) for k in range(1000)]
    edits += [Prune(cluster) for cluster in clusters[:1]]
    assert apply_all(tree, edits).is_compact


def test_equal_clients_need_no_matrix_of_all_pairs() -> None:
    """Nor do they take a join for every pair."""
    tree = dmac(space_of(np.full((5000, 3), 0.3)), DmacConfig())
    assert nested(tree) == frozenset(range(5000))
