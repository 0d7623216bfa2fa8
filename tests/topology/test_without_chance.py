"""Clusters that noise alone may have made, against the rule written out pair by pair."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.dmac import FAMILY, without_chance
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from tests.topology.strategies import examples, ids, space_of, tree_of, trees

Children = dict[NodeId, list[NodeId]]


def bound(k: int, terms: int, among: int) -> float:
    """Deviations by which a mean of `terms` differs for one of all groups of k, at the most."""
    return math.sqrt(2 * math.log(math.comb(among, k) / FAMILY) / terms)


def kept_by_hand(tree: Tree, space: Space) -> Children:
    """The children of every cluster that stays, by lists of pairs."""
    square = {
        (a, b): float(((space.positions[a] - space.positions[b]) ** 2).sum())
        for a, b in itertools.product(space.clients, repeat=2)
    }
    children: Children = {cluster: list(tree.children[cluster]) for cluster in tree.clusters}

    def clients(node: NodeId) -> list[NodeId]:
        below = children.get(node)
        return [node] if below is None else [c for child in below for c in clients(child)]

    def noise(parent: NodeId) -> float:
        """The deviation of distances from the mean of their kind: that of the two clusters."""
        nodes = [parent, *(node for node in children[parent] if node in children)]
        of = {c: node for node in nodes for c in children[node] if c not in children}
        kinds: dict[frozenset[NodeId], list[float]] = {}
        for a, b in itertools.combinations(of, 2):
            kinds.setdefault(frozenset((of[a], of[b])), []).append(square[a, b])
        scatter = sum(
            float(((np.array(kind) - np.mean(kind)) ** 2).sum()) for kind in kinds.values()
        )
        degrees = sum(len(kind) - 1 for kind in kinds.values())
        return math.sqrt(scatter / degrees) if degrees else 0.0

    def is_chance(cluster: NodeId, parent: NodeId, deviation: float) -> bool:
        group, every = clients(cluster), clients(parent)
        others = [client for client in every if client not in group]
        parts = [clients(child) for child in children[cluster]]
        inner = np.mean(
            [
                square[a, b]
                for x, y in itertools.combinations(parts, 2)
                for a, b in itertools.product(x, y)
            ]
        )
        outer = np.mean([square[a, b] for a in group for b in others])
        within = np.array([sum(square[a, b] for b in group) / (len(group) - 1) for a in group])
        reach = within.std(ddof=1) * bound(len(others), len(others), len(every))
        by_noise = deviation * bound(len(group), len(group) - 1, len(every))
        return bool(outer - inner <= by_noise or outer - within.mean() <= reach)

    for parent in tree.clusters:
        doubtful = [node for node in children.get(parent, ()) if node in children]
        while doubtful:
            deviation = noise(parent)
            gone = [cluster for cluster in doubtful if is_chance(cluster, parent, deviation)]
            doubtful = [node for cluster in gone for node in children[cluster] if node in children]
            for cluster in gone:
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


def test_a_group_is_compared_to_those_of_its_parent() -> None:
    """How many clients there are elsewhere does not decide whether a part of a cluster stays."""
    rng, kept = np.random.default_rng(0), {0: 0, 40: 0}
    for _ in range(30):
        parts = rng.normal(size=(6, 300)) * 0.5**0.5
        parts[:3, 0] += 7.5
        for far, times in kept.items():
            others = rng.normal(size=(far, 300)) * 0.5**0.5
            others[:, 1] += 100
            inner = [[0, 1, 2], [3, 4, 5]]
            tree = tree_of([inner, list(range(6, 6 + far))] if far else inner)
            space = space_of(np.vstack([parts, others]), linkage="average")
            found = {frozenset(below) for below in without_chance(tree, space).children.values()}
            kept[far] = times + ({frozenset(part) for part in inner} <= found)
    assert 0 < kept[0] == kept[40] < 30


def test_what_a_dissolved_cluster_leaves_is_tested_among_all() -> None:
    """Three of six are no small group of six if these six are none among all."""
    positions = np.random.default_rng(0).normal(size=(40, 60))
    tree = tree_of([[[0, 1, 2], [3, 4, 5]], *range(6, 40)])
    assert without_chance(tree, space_of(positions, linkage="average")).depth == 1
    positions[:3, 0] += 40
    after = without_chance(tree, space_of(positions, linkage="average"))
    found = {frozenset(after.clients_of(cluster)) for cluster in after.clusters[1:]}
    assert found == {frozenset({0, 1, 2})}
