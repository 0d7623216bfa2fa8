"""What DMAC without a threshold adds up on its way."""

from __future__ import annotations

import numpy as np
import pytest

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.clustering.dmac import Branch, dmac, outer_pairs
from sofa_fl.topology.clustering.separation import PairDistances, Separation
from tests.topology.strategies import ids, node, space_of


def branch(first: int, size: int, mean: float, *parts: Branch) -> Branch:
    """A branch of `size` clients from row `first` on."""
    rows, pairs = np.arange(first, first + size), PairDistances(10, mean, 0.1)
    return Branch(rows, pairs=pairs, parts=[*parts])


def client(row: int) -> Branch:
    return Branch(np.array([row]), node(row))


def cluster(first: int, size: int, mean: float) -> Branch:
    made = branch(first, size, mean, client(first), client(first + 1))
    made.id = node(100 + first)
    return made


def test_a_join_adds_up_the_clusters_that_it_keeps_and_those_of_joins_that_are_none() -> None:
    total = branch(0, 20, 9.0, client(0), cluster(1, 3, 2.0), cluster(4, 4, 5.0))
    for first in (8, 14):
        total.add(branch(first, 6, 7.0, client(first), cluster(first + 1, 2, 1.0)))
    total.add(client(19))
    assert [part.id for part in total.parts] == list(ids(0, 101, 104, 8, 109, 14, 115, 19))
    assert total.pairs.num == 30
    total.outer = PairDistances(10, total.pairs.mean, 0.1)  # so near that it is no cluster
    expected = (30.0 + (20 - 11) * total.pairs.mean) / 20
    assert total.tightness(1.06) == pytest.approx(expected)


def test_the_pairs_of_each_member_are_those_with_all_others() -> None:
    space = space_of(np.random.default_rng(0).normal(size=(7, 3)), linkage="average")
    rows = [np.array([0, 1]), np.array([2]), np.array([3, 4, 5]), np.array([6])]
    test = Separation(space)
    total, outer = outer_pairs(test, rows)
    assert total == test.within(rows)
    for member, pairs in zip(rows, outer, strict=True):
        others = np.setdiff1d(np.arange(7), member)
        expected = test.between(member, others)
        assert pairs.num == expected.num
        assert pairs.mean == pytest.approx(expected.mean)


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_trees_do_not_depend_on_the_unit_of_distances(unit: float) -> None:
    """A group beside one client has no other part to be compared with."""
    rng = np.random.default_rng(1)
    positions = np.concatenate([rng.normal(size=(12, 30)), np.full((1, 30), 20.0)])
    tree = dmac(space_of(unit * positions, linkage="average"), DmacConfig(certain=False))
    assert sorted(len(tree.clients_of(cluster)) for cluster in tree.clusters) == [12, 13]
