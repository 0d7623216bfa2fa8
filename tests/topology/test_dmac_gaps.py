"""DMAC without a fixed increase: clusters are where the distances have a gap, and nowhere else."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.dmac import dendrogram, dmac, without_chance
from sofa_fl.topology.tree import Tree
from tests.topology.strategies import generic_places, like_models, nested, space_of, tree_of
from tests.topology.worlds import apart

GROUPS = [[[6 * r + 3 * g + c for c in range(3)] for g in range(2)] for r in range(4)]


def build(positions: np.ndarray) -> Tree:
    return dmac(space_of(positions, linkage="average"), DmacConfig())


@pytest.mark.parametrize("seed", range(10))
def test_finds_groups_of_groups_in_noise(seed: int) -> None:
    """Four times two times three clients, as far apart as models are after a short training."""
    tree = build(like_models(np.random.default_rng(seed), rotations=4, groups=2, clients=3))
    assert nested(tree) == nested(tree_of(GROUPS))


NOISE = [(20, 20), (20, 1000), (50, 60), (100, 200), (200, 20), (200, 1000), (300, 100)]


@pytest.mark.parametrize(("num", "dimensions"), NOISE)
def test_noise_gives_a_flat_tree(num: int, dimensions: int) -> None:
    """In 19 of 20 worlds; it is not always flat without the test for chance."""
    spaces = [
        space_of(np.random.default_rng(seed).normal(size=(num, dimensions)), linkage="average")
        for seed in range(20)
    ]
    assert sum(dmac(space).depth == 1 for space in spaces) >= 19
    if (num, dimensions) == (200, 20):
        eager = DmacConfig(certain=False)
        assert sum(dmac(space, eager).depth == 1 for space in spaces) < 10


def test_noise_of_any_number_and_dimension_gives_a_flat_tree() -> None:
    """95 of 100 worlds of 20 to 300 clients in 20 to 1,000 dimensions."""
    rng, flat = np.random.default_rng(0), 0
    for _ in range(100):
        num, dimensions = int(rng.integers(20, 301)), int(20 * 50 ** rng.random())
        flat += dmac(space_of(rng.normal(size=(num, dimensions)), linkage="average")).depth == 1
    assert flat >= 95


@pytest.mark.parametrize("num", [1, 2, 3])
def test_few_clients_give_a_flat_tree(num: int) -> None:
    for seed in range(5):
        positions = np.random.default_rng(seed).normal(size=(num, 50))
        assert build(positions).depth == min(num - 1, 1)


@pytest.mark.parametrize("ratio", [1.5, 3])
@pytest.mark.parametrize("sizes", [[4, 4, 4], [3, 20, 8], [30, 30]])
def test_groups_are_found_in_noise(sizes: list[int], ratio: float) -> None:
    """Squared distances of 1 within and of `ratio` between, both with noise."""
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noise = 0.02 * rng.normal(size=(sum(sizes), len(sizes) + sum(sizes)))
        tree = build(apart(sizes, ratio) + noise)
        ends = np.cumsum(sizes).tolist()
        groups = [list(range(end - size, end)) for size, end in zip(sizes, ends)]
        found += nested(tree) == nested(tree_of(groups))
    assert found >= 19


def squares_of(positions: np.ndarray) -> np.ndarray:
    return np.asarray(((positions[:, None] - positions[None]) ** 2).sum(axis=2))


@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_stays_if_its_gap_is_more_than_chance(seed: int) -> None:
    """By brute force: the gap against the spread of distances, for ever nearer groups."""
    k, n = 4, 12
    noise = np.random.default_rng(seed).normal(size=(n, 30))
    tree, seen = tree_of([[0, 1, 2, 3], *range(k, n)]), set()
    inside = (np.triu_indices(k, 1), tuple(k + i for i in np.triu_indices(n - k, 1)))
    for shift in np.linspace(0, 12, 60):
        positions = noise.copy()
        positions[:k, 0] += shift
        squares = squares_of(positions)
        inner, beside = (squares[rows] for rows in inside)
        between = squares[:k, k:]
        gap = between.mean() - inner.mean()
        scatter = sum(((x - x.mean()) ** 2).sum() for x in (inner, beside, between))
        deviation = np.sqrt(scatter / (inner.size + beside.size + between.size - 3))
        ways = np.log(math.comb(n, k)) - np.log(0.05)
        chance = deviation * np.sqrt(2 * ways / (k - 1))
        means, m = squares[:k, :k].sum(axis=1) / (k - 1), n - k
        outermost = means.std(ddof=1) * np.sqrt(2 * ways / m)
        stays = bool(gap > chance and gap > outermost)
        after = without_chance(tree, space_of(positions, linkage="average"))
        assert after.depth == 1 + stays
        seen.add(stays)
    assert seen == {True, False}


def test_the_highest_are_dissolved_first_and_children_go_up() -> None:
    positions = np.random.default_rng(0).normal(size=(12, 50))
    tree = tree_of([[[0, 1], 2, 3], [[4, 5, 6], 7, 8, 9, 10, 11]])
    assert nested(without_chance(tree, space_of(positions))) == frozenset(range(12))
    positions[:4, 0] += 100
    after = without_chance(tree, space_of(positions))
    assert nested(after) == nested(tree_of([[0, 1, 2, 3], list(range(4, 12))]))
    assert after.next_id == tree.next_id


def test_others_that_are_only_outermost_make_no_group() -> None:
    """One client a little farther out than the rest, and one that is far from all."""
    positions = np.random.default_rng(4).normal(size=(10, 200))
    tree = tree_of([list(range(9)), 9])
    for times, depth in ((1.1, 1), (5, 2)):
        out = positions.copy()
        out[9] *= times
        assert without_chance(tree, space_of(out)).depth == depth


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
def test_the_dendrogram_is_that_of_the_mean_over_all_pairs(seed: int) -> None:
    """By brute force: join the two of which the mean of all squares is least."""
    rng = np.random.default_rng(seed)
    squares = squares_of(generic_places(rng, int(rng.integers(1, 12)), 4, bool(seed % 2)))
    groups = {row: [row] for row in range(len(squares))}
    joins = list[set[int]]()
    while len(groups) > 1:
        a, b = min(
            itertools.combinations(groups, 2),
            key=lambda two: squares[np.ix_(groups[two[0]], groups[two[1]])].mean(),
        )
        groups[len(squares) + len(joins)] = groups.pop(a) + groups.pop(b)
        joins.append({a, b})
    assert [set(join) for join in dendrogram(squares)] == joins
