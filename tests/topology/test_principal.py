"""Principal components: what stands out from noise stays, and noise goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sofa_fl.topology.clustering.separation import most_by_noise, num_signals, without_noise
from sofa_fl.topology.space import Floats
from tests.topology.strategies import space_of


def noise(seed: int, clients: int, dimensions: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(clients, dimensions))


def variances(positions: Floats) -> Floats:
    centred = positions - positions.mean(axis=0)
    return np.linalg.svd(centred, compute_uv=False)[: min(len(centred) - 1, centred.shape[1])] ** 2


@pytest.mark.parametrize(("clients", "dimensions"), [(20, 100), (24, 5000), (100, 400), (300, 30)])
def test_noise_has_no_signals(clients: int, dimensions: int) -> None:
    found = [num_signals(variances(noise(seed, clients, dimensions))) for seed in range(40)]
    assert np.mean([num > 0 for num in found]) <= 0.1


@pytest.mark.parametrize("num", [1, 3, 5])
def test_groups_are_as_many_signals_as_tell_them_apart(num: int) -> None:
    """One fewer than groups, since they are seen from their mean."""
    right = 0
    for seed in range(20):
        positions = noise(seed, 6 * (num + 1), 3000)
        positions[np.arange(len(positions)), np.arange(len(positions)) // 6] += 25
        right += num_signals(variances(positions)) == num
    assert right >= 16


def test_the_edge_is_that_of_marchenko_and_pastur() -> None:
    """For as many directions as clients are squared, w is near 1 / √n; the largest is below."""
    for n in (50, 200):
        band = variances(noise(1, n, n * n)) / n**2
        w = 1 - (band.min() / band.mean()) ** 0.5
        assert w == pytest.approx(n**-0.5, rel=0.15)
        assert (1 + w) ** 2 < most_by_noise(band) / band.mean() < (1 + w) ** 2 * (1 + 6 / n)


def test_the_edge_by_hand() -> None:
    """Johnstone's spread around the edge, for n - 1 variances of n clients."""
    band = np.array([9.0, 4, 4, 4, 4, 4, 4, 4, 3, 2])
    n, w = 11, 1 - np.sqrt(2 / 4.2)
    m = n / w**2
    spread = (np.sqrt(n) + np.sqrt(m)) / m * (n**-0.5 + m**-0.5) ** (1 / 3)
    assert most_by_noise(band) == pytest.approx(4.2 * ((1 + w) ** 2 + 2.02 * spread), rel=1e-12)


def test_the_largest_of_three_can_stand_out() -> None:
    assert num_signals(np.array([1.0, 0.5, 0.5])) == 1
    assert num_signals(np.array([1.0, 0.8, 0.5])) == 0


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e3])
def test_as_many_directions_stay_as_there_are_signals(unit: float) -> None:
    """Groups that are so near that some stand out and some do not, in any unit."""
    found = []
    for seed in range(30):
        positions = noise(seed, 24, 400)
        positions[np.arange(24), np.arange(24) // 6] += 5
        found.append(num_signals(variances(positions)))
        clean = without_noise(space_of(unit * positions))
        assert clean.positions.shape == (24, max(1, found[-1]))
    assert {0, 1, 2} <= set(found)


def test_the_edge_goes_with_the_scale() -> None:
    band = variances(noise(0, 30, 500))
    assert most_by_noise(7 * band) == pytest.approx(7 * most_by_noise(band))
    assert num_signals(7 * band) == num_signals(band)


def test_without_noise_groups_are_far_apart() -> None:
    positions = noise(0, 24, 3000)
    positions[np.arange(24), np.arange(24) // 6] += 20
    space = space_of(positions)
    clean = without_noise(space)
    same = np.equal.outer(np.arange(24) // 6, np.arange(24) // 6) & ~np.eye(24, dtype=bool)

    def ratio(positions: Floats) -> float:
        distances = np.linalg.norm(positions[:, None] - positions, axis=2)
        return float(distances[~same].mean() / distances[same].mean())

    assert ratio(space.positions) < 1.1 < 3 < ratio(clean.positions)
    assert clean.positions.shape == (24, 3)
    assert (clean.clients, clean.linkage) == (space.clients, space.linkage)


def test_where_nothing_stands_out_all_are_at_one_place() -> None:
    space = space_of(noise(2, 24, 3000))
    assert num_signals(variances(space.positions)) == 0
    assert (without_noise(space).positions == 0).all()


def test_equal_clients_and_few_directions_stay_as_they_are() -> None:
    for positions in (np.ones((20, 30)), noise(0, 20, 7), noise(0, 8, 30)):
        space = space_of(positions)
        assert without_noise(space) is space
    assert without_noise(space_of(noise(0, 9, 30))).positions.shape[1] < 30
    assert without_noise(space_of(noise(0, 20, 8))).positions.shape[1] < 8


def test_other_metrics_know_no_directions() -> None:
    space = space_of(noise(0, 24, 300))
    for metric in ("manhattan", "cosine"):
        other = replace(space, metric=metric)
        assert without_noise(other) is other
