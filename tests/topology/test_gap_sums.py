"""What DMAC without a threshold adds up on its way."""

from __future__ import annotations

import numpy as np
import pytest

from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.dmac import Candidate, dmac, outer_pairs
from sofa_fl.topology.clustering.separation import Pairs, Separation
from tests.topology.strategies import space_of


def candidate(size: int, mean: float, *clusters: Candidate) -> Candidate:
    return Candidate(Pairs(10, mean, 0.1), size, clusters=list(clusters))


def test_a_join_adds_up_the_clusters_that_it_keeps_and_those_of_joins_that_are_none() -> None:
    total = candidate(20, 9.0, candidate(3, 2.0), candidate(4, 5.0))
    total.parts = [1, 2]
    for first in (3, 5):
        other = candidate(6, 7.0, candidate(2, 1.0))
        other.parts = [first, first + 1]
        total.take_over(other)
    assert total.parts == [1, 2, 3, 4, 5, 6]
    assert [cluster.size for cluster in total.clusters] == [3, 4, 2, 2]
    assert total.pairs.num == 30
    near = Pairs(10, total.pairs.mean, 0.1)  # so that it is no cluster
    expected = (30.0 + (20 - 11) * total.pairs.mean) / 20
    assert total.tightness(near, 1.06) == pytest.approx(expected)


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
