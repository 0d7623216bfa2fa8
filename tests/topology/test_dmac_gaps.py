"""DMAC without a fixed increase: clusters are where the distances have a gap, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from sofa_fl.topology.clustering.candidates import Neighbors
from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.dmac import dendrogram, dmac
from sofa_fl.topology.tree import Tree
from tests.topology.strategies import generic_places, like_models, nested, space_of, tree_of

GROUPS = [[[6 * r + 3 * g + c for c in range(3)] for g in range(2)] for r in range(4)]


def build(positions: np.ndarray) -> Tree:
    return dmac(space_of(positions, linkage="average"), DmacConfig())


@pytest.mark.parametrize("seed", range(10))
def test_finds_groups_of_groups_in_noise(seed: int) -> None:
    """Four times two times three clients, as far apart as models are after a short training."""
    tree = build(like_models(np.random.default_rng(seed), rotations=4, groups=2, clients=3))
    assert nested(tree) == nested(tree_of(GROUPS))


@pytest.mark.parametrize("num", [1, 2, 3, 5, 20, 100])
@pytest.mark.parametrize("dimensions", [200, 1000])
def test_noise_gives_a_flat_tree(num: int, dimensions: int) -> None:
    for seed in range(5):
        positions = np.random.default_rng(seed).normal(size=(num, dimensions))
        assert build(positions).depth == min(num - 1, 1)


@pytest.mark.parametrize("seed", range(5))
def test_clients_that_are_only_noisier_make_no_level(seed: int) -> None:
    rng = np.random.default_rng(seed)
    positions = rng.normal(size=(20, 500))
    positions[:2] *= 1.4
    assert build(positions).depth == 1


def test_a_client_far_from_all_others_stands_beside_them() -> None:
    rng = np.random.default_rng(0)
    positions = rng.normal(size=(10, 500))
    positions[3, 0] += 200
    others = [client for client in range(10) if client != 3]
    assert nested(build(positions)) == nested(tree_of([others, 3]))


@pytest.mark.parametrize("seed", range(5))
def test_groups_need_not_be_equally_tight(seed: int) -> None:
    """One is eight times as loose as another."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(4, 400))
    noise = np.array([0.2, 0.5, 1.0, 1.6])
    positions = np.repeat(centres, 4, axis=0) + np.repeat(noise, 4)[:, None] * rng.normal(
        size=(16, 400)
    )
    tree = build(positions)
    found = {frozenset(tree.clients_of(cluster)) for cluster in tree.clusters}
    assert {frozenset(range(first, first + 4)) for first in (0, 4, 8, 12)} <= found


@pytest.mark.parametrize("seed", range(10))
def test_joining_all_mutual_pairs_at_once_is_classical(seed: int) -> None:
    rng = np.random.default_rng(seed)
    positions = generic_places(rng, int(rng.integers(2, 60)), 4, bool(seed % 2))
    tree = dendrogram(Neighbors(space_of(positions, linkage="average")))
    found = {frozenset(clients.tolist()) for clients in tree.clients}
    sets = [frozenset([row]) for row in range(len(positions))]
    for first, second in linkage(pdist(positions) ** 2, "average")[:, :2].astype(int):
        sets.append(sets[first] | sets[second])
    assert found == set(sets)
