"""Pairs of siblings: all that may be merged, nearest first, and of very many enough."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.clustering.fast import merge_bounds as siblings
from sofa_fl.topology.clustering.fast.merge_bounds import near_pairs
from sofa_fl.topology.geometry.space import Linkage, Metric, Space
from sofa_fl.topology.tree import Tree
from tests.topology.strategies import WAYS, examples, generic_places, ids, node, trees

SEEDS = st.integers(0, 2**32 - 1)


def by_hand(
    tree: Tree, space: Space, reach: float, widest: float
) -> tuple[list[tuple[int, int]], set[tuple[int, int]]]:
    """The pairs of sibling clusters within reach, nearest first, and those that are narrow."""
    bodies, pairs, narrow = space.locate(tree), [], set()
    for parent in tree.clusters:
        below = [c for c in tree.children[parent] if c not in tree.members and c in bodies]
        found = []
        for at, a in enumerate(below):
            for b in below[at + 1 :]:
                apart = float(space.between([bodies[a]], [bodies[b]])[0, 0])
                if apart <= reach:
                    found.append((apart, a, b))
                    children = [*tree.children[a], *tree.children[b]]
                    if space.spread([bodies[c] for c in children if c in bodies]) <= widest:
                        narrow.add((int(a), int(b)))
        pairs += [(int(a), int(b)) for _, a, b in sorted(found, key=lambda each: each[0])]
    return pairs, narrow


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
@pytest.mark.parametrize("few", [1, 64])
@examples(25)
@given(seed=SEEDS, n=st.integers(4, 14), data=st.data())
def test_finds_the_pairs_that_are_near_and_not_loose(
    metric: Metric, linkage: Linkage, few: int, seed: int, n: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    positions = generic_places(rng, n, 3, bool(seed % 2), 0.1)
    space = Space(ids(*range(n)), positions, rng.uniform(1, 5, n), metric, linkage)
    tree = data.draw(trees(space.clients, compact=False))
    reach, widest = space.scale * rng.uniform(0.3, 2), space.scale * rng.uniform(0.2, 1.2)
    expected, narrow = by_hand(tree, space, reach, widest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(siblings, "FEW", few)
        patch.setattr(siblings, "BLOCK", 5)
        rows = near_pairs(space, space.locate(tree), reach, widest)
    found = [tuple(pair) for pair in tree.arrays.nodes[np.stack(rows, axis=1)].tolist()]
    kept = set(found)
    assert found == [pair for pair in expected if pair in kept]
    if few > 1 or metric != "euclidean":
        assert narrow <= kept
    elif narrow:
        assert kept & narrow, "one partner of each is enough to go on"


def test_a_tree_without_clusters_has_no_pairs() -> None:
    space = Space(ids(0), np.zeros((1, 2)), np.ones(1))
    a, b = near_pairs(space, space.locate(Tree({node(0): None}, ids(0), 1)), 1.0, 1.0)
    assert len(a) == len(b) == 0
