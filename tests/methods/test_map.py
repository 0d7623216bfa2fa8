from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from sofa_fl.methods.positions import map_of, plane
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId


def space_of(positions: np.ndarray) -> Space:
    clients = tuple(NodeId(3 * i) for i in range(len(positions)))
    return Space(clients, positions, np.ones(len(positions)))


def test_what_is_flat_keeps_its_distances() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(30, 2)) * [5, 1]
    turn, _ = np.linalg.qr(rng.normal(size=(40, 40)))
    positions = np.hstack([flat, np.zeros((30, 38))]) @ turn + 7
    found = map_of(space_of(positions))
    assert list(found) == [3 * i for i in range(30)]
    assert np.allclose(pdist(np.array(list(found.values()))), pdist(flat), rtol=0.01, atol=0.01)


def test_the_two_widest_directions_are_shown() -> None:
    rng = np.random.default_rng(1)
    positions = rng.normal(size=(200, 12)) * [9, 6, *[1] * 10]
    found = plane(positions, np.ones(200))
    values = np.linalg.svd(positions - positions.mean(0), compute_uv=False)
    assert np.allclose(np.linalg.norm(found, axis=0), values[:2], rtol=1e-3)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 1), (3, 2)])
def test_few_clients_or_dimensions(shape: tuple[int, int]) -> None:
    positions = np.arange(np.prod(shape), dtype=float).reshape(shape) ** 2
    found = np.array(list(map_of(space_of(positions)).values()))
    assert found.shape == (shape[0], 2)
    assert np.isfinite(found).all()
    assert np.allclose(pdist(found), pdist(positions), rtol=0.01)


def test_equal_clients_are_at_one_point_and_twice_is_the_same() -> None:
    assert set(map_of(space_of(np.full((5, 3), 2.0))).values()) == {(0.0, 0.0)}
    positions = np.random.default_rng(2).normal(size=(20, 9))
    assert map_of(space_of(positions)) == map_of(space_of(positions))
