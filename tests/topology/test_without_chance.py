"""Clusters that noise alone may have made, against the rule written out pair by pair."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.clustering.separation import FAMILY, without_chance
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from tests.topology.strategies import examples, ids, space_of, tree_of, trees

Children = dict[NodeId, list[NodeId]]


def bound(k: int, terms: int, among: int) -> float:
    """Deviations by which a mean of `terms` differs for one of all groups of k, at the most."""
    log_ways = k * math.log(math.e * among / k)
    return math.sqrt(2 * (log_ways - math.log(FAMILY)) / terms)


def kept_by_hand(tree: Tree, space: Space) -> Children:
    """The children of every cluster that stays, by lists of pairs."""
    among = len(space.clients)
    square = {
        (a, b): float(((space.positions[a] - space.positions[b]) ** 2).sum())
        for a, b in itertools.product(space.clients, repeat=2)
    }
    children: Children = {cluster: list(tree.children[cluster]) for cluster in tree.clusters}

    def clients(node: NodeId) -> list[NodeId]:
        below = children.get(node)
        return [node] if below is None else [c for child in below for c in clients(child)]

    for parent in reversed(tree.clusters):
        clusters = [node for node in children[parent] if node in children]
        scatter, degrees = 0.0, 0
        for node in (parent, *clusters):
            alone = [child for child in children[node] if child not in children]
            if len(alone) > 1:
                noise = np.array([square[a, b] for a, b in itertools.combinations(alone, 2)])
                scatter += float(((noise - noise.mean()) ** 2).sum())
                degrees += len(noise) - 1
        deviation = math.sqrt(scatter / degrees) if degrees else 0.0
        for cluster in clusters:
            group = clients(cluster)
            others = [client for client in clients(parent) if client not in group]
            parts = [clients(child) for child in children[cluster]]
            inner = np.mean(
                [
                    square[a, b]
                    for x, y in itertools.combinations(parts, 2)
                    for a, b in itertools.product(x, y)
                ]
            )
            outer = np.mean([square[a, b] for a in group for b in others])
            is_chance = outer - inner <= deviation * bound(len(group), len(group) - 1, among)
            within = np.array([sum(square[a, b] for b in group) / (len(group) - 1) for a in group])
            reach = within.std(ddof=1) * bound(len(others), len(others), among)
            if is_chance or outer - within.mean() <= reach:
                at = children[parent].index(cluster)
                children[parent][at : at + 1] = children.pop(cluster)
    return children


@examples(300)
@given(st.integers(0, 2**32 - 1), st.integers(4, 12), st.data())
def test_a_cluster_stays_if_it_stands_out_by_more_than_the_most_extreme_group(
    seed: int, n: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    tree = data.draw(trees(ids(*range(n))))
    top = tree.children[tree.root]
    at = {client: k for k, child in enumerate(top) for client in tree.clients_of(child)}
    apart = 10 ** rng.uniform(-0.5, 2) * rng.normal(size=(len(top), 3))
    positions = rng.normal(size=(n, 3)) + apart[[at[client] for client in tree.clients]]
    unit = 10 ** rng.uniform(-3, 3)
    space = space_of(unit * positions, linkage="average")
    after, expected = without_chance(tree, space), kept_by_hand(tree, space)
    assert {c: sorted(after.children[c]) for c in after.clusters} == {
        cluster: sorted(children) for cluster, children in expected.items()
    }


def test_equal_clients_are_no_noise() -> None:
    """Without two lone clients beside each other nothing says how much distances vary."""
    tree = tree_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]]])
    places = [0, 0, 1, 1, 50, 50, 51, 51]
    for unit in (1e-3, 1, 1e3):
        after = without_chance(tree, space_of(unit * np.array(places), linkage="average"))
        assert Counter(map(len, after.children.values())) == Counter(
            map(len, tree.children.values())
        )
