"""What is ruled out before k-means could not have been accepted after it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from sofa_fl.topology import parts
from sofa_fl.topology.parts import possible_numbers
from sofa_fl.topology.shape import find_splits
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import flat_tree
from tests.topology.strategies import (
    examples,
    generic_places,
    ids,
    only,
    space_of,
    tied_places,
)

SEEDS = st.integers(0, 2**32 - 1)


def all_partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """Every way to part `items`."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in all_partitions(rest):
        yield [[first], *partition]
        for at, part in enumerate(partition):
            yield [*partition[:at], [first, *part], *partition[at + 1 :]]


def acceptable(space: Space, widest: float) -> set[int]:
    """The numbers of parts for which any partition would be accepted, by trying all."""
    found = set()
    for partition in all_partitions(list(range(len(space.clients)))):
        narrow = all(
            space.spread_of(space.places[part], space.weights[part]) <= widest for part in partition
        )
        if narrow and sum(len(part) == 1 for part in partition) <= 1:
            found.add(len(partition))
    return found


def numbers_of(space: Space, widest: float, bounded: bool = True) -> set[int]:
    bodies = space.locate(flat_tree(space.clients))
    (numbers,) = possible_numbers(bodies, np.array([0]), 8, widest, bounded)
    return set(numbers)


@pytest.mark.parametrize("few", [0, 9])
@examples(50)
@given(seed=SEEDS, n=st.integers(3, 7), d=st.integers(1, 6), share=st.floats(0.05, 1.1))
def test_no_acceptable_number_is_ruled_out(
    few: int, seed: int, n: int, d: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    places = tied_places(rng, n, d) if seed % 3 == 0 else generic_places(rng, n, d, seed % 3 == 1)
    weights = rng.integers(1, 9, n).astype(np.float64)
    space = Space(ids(*range(n)), places, weights)
    widest = share * space.scale
    expected = acceptable(space, widest) & set(range(2, n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "FEW", few)
        found = numbers_of(space, widest)
    assert expected <= found
    wider = acceptable(space, 1.0001 * widest) & set(range(2, n))
    if few and seed % 3 and wider == expected:
        assert found == expected, "of few children all is known"
    assert expected <= numbers_of(space, widest, bounded=False)


def test_noise_is_ruled_out_without_k_means() -> None:
    places = np.random.default_rng(0).normal(size=(20, 200))
    space = Space(ids(*range(20)), places, np.ones(20))
    assert numbers_of(space, 0.82 * space.scale) == set()
    assert numbers_of(space, 0.82 * space.scale, bounded=False) == set(range(2, 9))


def test_k_means_is_not_asked_twice_of_the_same_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even once, where it could find nothing."""
    asked: list[int] = []

    def watched(k: int, **settings: int) -> KMeans:
        asked.append(k)
        return KMeans(k, **settings)

    monkeypatch.setattr(parts, "KMeans", watched)
    # Twelve on a circle are too many to try all subsets, and too round to fall into halves.
    angles = np.arange(12) * np.pi / 6
    circle = space_of(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    config = only("split", split=0.77, max_parts=2)
    for _ in range(2):
        assert find_splits(flat_tree(circle.clients), circle, config) == []
        assert asked == [2]
    noise = space_of(np.random.default_rng(0).normal(size=(20, 200)))
    assert find_splits(flat_tree(noise.clients), noise, only("split", split=0.82)) == []
    assert asked == [2]


def test_blobs_are_not() -> None:
    rng = np.random.default_rng(0)
    places = np.repeat(rng.normal(size=(3, 50)), 8, axis=0) + 0.1 * rng.normal(size=(24, 50))
    space = Space(ids(*range(24)), places, np.ones(24))
    found = numbers_of(space, 0.3 * space.scale)
    assert 3 in found
    assert 2 not in found, "two of the blobs in one part are too wide"
