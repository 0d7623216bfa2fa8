"""Twenty thousand clients: no recursion, no quadratic memory, in any shape of tree.

What would be quadratic does not fit into memory, or not into the patience of a test.
"""

from __future__ import annotations

import numpy as np
import pytest

from sofa_fl.topology.dmac import dmac
from sofa_fl.topology.edits import Edit, Graft, Prune, apply_all
from sofa_fl.topology.shape import Proposer, find_prunes
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from tests.topology.strategies import ids, nested, node, only, space_of

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
    assert find_prunes(chain(MANY)) == []
    deep = chain(2000)  # no recursion goes as deep; what is moved or asked grows with the square
    assert nested(apply_all(deep, find_prunes(deep, set(deep.clusters)))) == frozenset(range(2000))
    proposals = Proposer(deep, line(2000), only("graft", "merge"), due=lambda n: n < 9).all()
    assert {proposal.node for proposal in proposals} == set(range(9))


def test_a_star_is_located_and_shaped() -> None:
    tree, space = flat_tree(ids(*range(MANY))), line(MANY)
    nodes = space.locate(tree)
    assert nodes.positions[0, 0] == pytest.approx((MANY - 1) / 2)
    assert Proposer(tree, space, only("graft", "merge")).all() == []
    assert find_prunes(tree) == []


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
    space = space_of(np.repeat(np.arange(float(num)) ** 1.1, 2))
    proposals = Proposer(stars(num), space, only("graft", "merge")).all()
    merges = [p for p in proposals if p.operation == "merge"]
    assert num < len(merges) <= 3 * num
    assert len(proposals) - len(merges) == 2 * num * (1 + 3), "up, and three beside"


def test_a_thousand_edits_are_checked_once() -> None:
    tree = stars(30_000)
    clusters = tree.children[tree.root]
    edits: list[Edit] = [Graft(node(2 * k), clusters[k + 1]) for k in range(1000)]
    edits += [Prune(cluster) for cluster in clusters[:1]]
    assert apply_all(tree, edits).is_compact


def test_thousands_of_equal_clients_are_one_cluster() -> None:
    """No recursion goes through the dendrogram, in which each join has one client more."""
    tree = dmac(space_of(np.full((2000, 3), 0.3)))
    assert nested(tree) == frozenset(range(2000))
