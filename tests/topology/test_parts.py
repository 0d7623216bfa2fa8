"""K-means is asked of a cluster once, and not at all where it could be of no use."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from sofa_fl.topology.clustering import split_candidates as parts
from sofa_fl.topology.clustering.shape import find_splits
from sofa_fl.topology.clustering.split_candidates import Parts
from sofa_fl.topology.tree import flat_tree
from tests.topology.strategies import ids, only, space_of, tree_of


def test_k_means_is_not_asked_twice_of_the_same_children(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def watched(k: int, **settings: int) -> KMeans:
        asked.append(k)
        return KMeans(k, **settings)

    monkeypatch.setattr(parts, "KMeans", watched)
    angles = np.arange(12) * np.pi / 6
    circle = space_of(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    config = only("split", split=0.77, max_parts=2)
    for _ in range(2):
        assert find_splits(flat_tree(circle.clients), circle, config) == []
        assert asked == [2]
    assert find_splits(flat_tree(circle.clients), circle, only("split", split=1.01)) == []
    two = space_of([0, 1.0])
    assert find_splits(flat_tree(ids(0, 1)), two, only("split", split=0.1)) == []
    assert asked == [2], "coherent, or too few to be parted"


def test_pairs_are_those_of_different_children() -> None:
    tree, positions = tree_of([[[0, 1], 2], [3, 4]]), np.array([0.0, 1, 3, 10, 12])
    space = space_of(positions)
    bodies = space.locate(tree)
    row = {int(node): at for at, node in enumerate(tree.arrays.nodes)}
    clusters = [tree.parent[tree.clients[client]] for client in (2, 3)]
    children = [tree.arrays.children(row[int(cluster)]) for cluster in clusters if cluster]
    found = Parts(space, bodies, children)
    inner = [found.inner(part) for part in (0, 1)]
    assert inner[0] is not None
    assert inner[1] is not None
    assert (inner[0].num, inner[0].mean) == pytest.approx((2, (9 + 4) / 2)), "0-2 and 1-2"
    assert (inner[1].num, inner[1].mean) == pytest.approx((1, 4))
    squares = (positions[:3, None] - positions[None, 3:]) ** 2
    outer = found.outer(0, 1)
    assert (outer.num, outer.mean) == pytest.approx((6, squares.mean()))
    assert outer.scatter == pytest.approx(squares.var() * 6)
    assert found.set_apart()
