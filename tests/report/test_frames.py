from __future__ import annotations

import numpy as np
import pytest

from sofa_fl.report.history import align


@pytest.mark.parametrize("mirror", [1, -1])
def test_a_turned_map_is_turned_back(mirror: int) -> None:
    rng = np.random.default_rng(0)
    before = {client: (float(x), float(y)) for client, (x, y) in enumerate(rng.normal(size=(9, 2)))}
    turn = np.array([[0.6, -0.8], [0.8, 0.6]]) * [1, mirror]
    now = {client: (float(x), float(y)) for client, (x, y) in _times(before, turn).items()}
    found = align(now, before)
    assert all(np.allclose(found[c], before[c], atol=1e-3) for c in before)


def test_only_those_on_both_maps_decide_and_distances_stay() -> None:
    before = {0: (1.0, 0.0), 1: (-1.0, 0.0), 7: (50.0, 50.0)}
    found = align({0: (0.0, 1.0), 1: (0.0, -1.0), 2: (0.0, 3.0)}, before)
    assert found == {0: (1.0, 0.0), 1: (-1.0, 0.0), 2: (3.0, 0.0)}


@pytest.mark.parametrize("before", [{}, {0: (1.0, 2.0)}, {5: (0.0, 0.0), 6: (1.0, 1.0)}])
def test_nothing_to_align_to(before: dict[int, tuple[float, float]]) -> None:
    positions = {0: (3.0, 4.0), 1: (5.0, 6.0)}
    assert align(positions, before) == positions
    assert align({}, before) == {}


def _times(
    positions: dict[int, tuple[float, float]], turn: object
) -> dict[int, tuple[float, float]]:
    return {
        c: tuple((np.array(place) @ np.asarray(turn)).tolist()) for c, place in positions.items()
    }
