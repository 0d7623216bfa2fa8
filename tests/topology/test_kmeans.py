"""The partitions that k-means proposes: which ones, in which order, and when it stops."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sofa_fl.topology.paper import partitions
from sofa_fl.topology.tree import flat_tree
from tests.topology.strategies import space_of


def proposed(
    positions: ArrayLike, numbers: list[int], weights: ArrayLike | None = None
) -> list[list[list[int]]]:
    """The clients of every part of every partition."""
    space = space_of(positions, weights)
    tree = flat_tree(space.clients)
    found = partitions(space.locate(tree), tree.children[tree.root], numbers)
    return [[list(part) for part in parts] for parts in found]


def test_a_partition_for_every_number_its_parts_in_order_of_position() -> None:
    positions = [50, 0, 51, 1, 200, 201]
    assert proposed(positions, [2, 3]) == [
        [[0, 1, 2, 3], [4, 5]],
        [[1, 3], [0, 2], [4, 5]],
    ]
    assert proposed(positions, [3]) == [[[1, 3], [0, 2], [4, 5]]]
    assert proposed(positions, []) == []


def test_it_stops_where_positions_are_equal() -> None:
    positions = [0, 0, 1, 1, 5, 5]
    assert len(proposed(positions, [2, 3, 4, 5])) == 2
    assert proposed([3, 3, 3], [2]) == []


def test_every_child_may_be_a_part() -> None:
    assert proposed([0, 4, 1], [3]) == [[[0], [2], [1]]]


def test_weights_count() -> None:
    """The one in the middle goes with the lighter side, whose mean it moves most."""
    positions = [0, 1, 10.5, 20, 21]
    assert proposed(positions, [2], [5, 5, 1, 1, 1]) == [[[0, 1], [2, 3, 4]]]
    assert proposed(positions, [2], [1, 1, 1, 5, 5]) == [[[0, 1, 2], [3, 4]]]


def test_neither_units_nor_the_origin_matter() -> None:
    positions = np.random.default_rng(0).normal(size=(12, 3))
    expected = proposed(positions, [2, 3, 4])
    for unit in (1e-9, 1e6):
        assert proposed(unit * positions, [2, 3, 4]) == expected
    for origin in (100, 1e9):
        assert proposed(positions + origin, [2, 3, 4]) == expected


def test_it_finds_the_same_again() -> None:
    """Also in noise, where k-means has many optima: its starts are not drawn by chance."""
    positions = np.random.default_rng(0).normal(size=(40, 20))
    first = proposed(positions, [5, 6])
    assert all(proposed(positions, [5, 6]) == first for _ in range(3))
