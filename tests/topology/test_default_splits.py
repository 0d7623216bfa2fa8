"""SHAPE: splits, into parts that are worth it, by a k-means steered by positions alone."""

from __future__ import annotations

import numpy as np
import pytest

from sofa_fl.topology.clustering.config import DmacConfig, ShapeConfig
from sofa_fl.topology.clustering.default_edits import find_splits, partitions
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.shape import shape
from sofa_fl.topology.geometry.space import Floats, Linkage, Metric, Space
from sofa_fl.topology.tree import flat_tree
from sofa_fl.topology.tree.edits import Split, apply_all
from tests.topology.strategies import (
    ALL,
    CLOUDS,
    OPERATIONS,
    WAYS,
    ids,
    like_models,
    nested,
    only,
    space_of,
    tree_of,
)

# Four clients in two blobs, and four far away.
BLOBS = [[1, 0.0], [1, 0.02], [1, 0.5], [1, 0.52], [-1, 1.0], [-1, 1.02], [-1, 1.04], [-1, 1.06]]


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_a_cluster_of_two_blobs_is_split(metric: Metric, linkage: Linkage) -> None:
    tree = tree_of([[0, 1, 2, 3], [4, 5, 6, 7]])
    space = space_of(BLOBS, None, metric, linkage)
    (edit,) = find_splits(tree, space, only("split", split=0.05))
    assert isinstance(edit, Split)
    assert edit.node == 9
    assert edit.into == ids(11, 12)
    assert set(edit.groups) == {ids(0, 1), ids(2, 3)}
    assert nested(edit.apply(tree)) == nested(tree_of([[0, 1], [2, 3], [4, 5, 6, 7]]))
    # Both are far from the others: the root is split too, which brings their cluster back.
    after, _ = shape(tree, space, only("split", "prune", split=0.05))
    assert nested(after) == nested(tree_of([[[0, 1], [2, 3]], [4, 5, 6, 7]]))


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_a_root_of_two_blobs_is_split_and_stays(metric: Metric, linkage: Linkage) -> None:
    tree, space = flat_tree(ids(*range(6))), space_of(CLOUDS, None, metric, linkage)
    after, edits = shape(tree, space, ALL)
    assert len(edits) == 1
    assert isinstance(edits[0], Split)
    assert after.root == tree.root
    assert nested(after) == nested(tree_of([[0, 1], [2, 3, 4, 5]]))


def test_a_split_takes_the_first_number_of_parts_that_will_do() -> None:
    tree, space = flat_tree(ids(*range(9))), space_of([0, 1, 2, 50, 51, 52, 100, 101, 102])
    after, edits = shape(tree, space, only("split", split=0.1))
    assert len(edits) == 1
    assert nested(after) == nested(tree_of([[0, 1, 2], [3, 4, 5], [6, 7, 8]]))
    assert shape(tree, space, only("split", split=0.1, max_parts=2)) == (tree, [])


def test_no_acceptable_parts_means_no_split() -> None:
    tree = flat_tree(ids(*range(8)))
    even = space_of(list(range(8)))
    assert shape(tree, even, only("split", split=0.01)) == (tree, [])


def test_two_children_are_never_split() -> None:
    tree = tree_of([[0, 1], [2, 3]])
    assert shape(tree, space_of([0, 100, 200, 300]), only("split", split=0.001)) == (tree, [])


def test_at_most_one_part_is_a_child_alone() -> None:
    """Else a cluster that is mere noise would be peeled child by child."""
    config = only("split", split=0.2)
    one = flat_tree(ids(*range(5)))
    after, _ = shape(one, space_of([0, 1, 10, 11, 30]), config)
    assert [len(after.children[part]) for part in after.children[after.root]] == [4, 1]
    two = flat_tree(ids(*range(4)))
    assert shape(two, space_of([0, 1, 10, 30]), config) == (two, [])


def test_the_last_bit_of_a_place_does_not_steer_k_means() -> None:
    """It does, in few of a thousand draws; these are two of them."""
    for seed in (4651, 10161):
        rng = np.random.default_rng(seed)
        positions, weights = rng.normal(size=(5, 3)), rng.integers(1, 8, 5).astype(np.float64)
        tree = flat_tree(ids(*range(5)))
        bits = positions * (1 + np.array([-1, 1])[rng.integers(0, 2, (5, 3))] * 1.2e-16)
        first, second = (
            [[part.tolist() for part in parts] for parts in proposed]
            for proposed in (
                partitions(space.locate(tree), tree.arrays.children(0), range(2, 5))
                for space in (space_of(rows, weights) for rows in (positions, bits))
            )
        )
        assert first == second


def test_an_incoherent_cluster_of_clusters_is_split() -> None:
    positions = [0, 1, 3, 4, 50, 51, 53, 54, 500, 501, 503, 504]
    tree = tree_of([[[0, 1], [2, 3], [4, 5], [6, 7]], [[8, 9], [10, 11]]])
    edits = find_splits(tree, space_of(positions), only("split", split=0.05))
    assert nested(apply_all(tree, edits)) == nested(
        tree_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]])
    )
    assert len(edits) == 1


def test_clusters_that_are_only_somewhat_nearer_make_no_level() -> None:
    """They have trained apart, and so have drifted apart: a seventh is not enough for them."""
    rng = np.random.default_rng(0)
    positions = np.hstack([np.repeat(np.eye(4), 6, axis=0), 0.2 * rng.normal(size=(24, 100))])
    positions[:12, 0] += 0.7  # the first two are nearer to each other
    positions[:12, 1] += 0.7
    clusters = [list(range(first, first + 6)) for first in range(0, 24, 6)]
    space = space_of(positions, linkage="average")
    assert find_splits(tree_of(clusters), space, only("split", split=0.5)) == []


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_not_split(seed: int) -> None:
    """Nor into small parts, whose clients are near to each other by chance alone."""
    space = space_of(np.random.default_rng(seed).normal(size=(20, 200)), linkage="average")
    for split in (0.1, 0.65, 0.9):
        assert find_splits(flat_tree(space.clients), space, only("split", split=split)) == []


@pytest.mark.parametrize("seed", range(5))
def test_two_of_several_groups_are_taken_apart(seed: int) -> None:
    """Their cluster spreads less than all clients together do, and is still not one."""
    space = space_of(like_models(np.random.default_rng(seed), 4, 2, 3), linkage="average")
    mixed = [[*range(6)], *([*range(first, first + 3)] for first in range(6, 24, 3))]
    (edit,) = find_splits(tree_of(mixed), space, ShapeConfig())
    assert isinstance(edit, Split)
    assert set(edit.groups) == {ids(0, 1, 2), ids(3, 4, 5)}


@pytest.mark.parametrize("seed", range(5))
def test_what_dmac_built_is_left_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for positions in (like_models(rng, 4, 2, 3), rng.normal(size=(20, 300)), skewed(rng)):
        space = space_of(positions, linkage="average")
        tree = dmac(space, DmacConfig())
        assert shape(tree, space, ShapeConfig()) == (tree, [])


def skewed(rng: np.random.Generator) -> Floats:
    """Clients with mixtures of ten classes: no groups, and not the same distance everywhere."""
    classes = rng.normal(size=(10, 300))
    return rng.dirichlet(np.ones(10), size=20) @ classes + 0.3 * rng.normal(size=(20, 300))


def test_parent_and_child_may_be_split_in_one_pass() -> None:
    tree = tree_of([[0, 1, 2, 3], [4, 5], [6, 7], [8, 9]])
    space = space_of([-60, -59, 60, 61, 10, 11, 1000, 1001, 1010, 1011])
    edits = find_splits(tree, space, only("split", split=0.05))
    assert [edit.node for edit in edits if isinstance(edit, Split)] == list(ids(10, 11))
    assert nested(apply_all(tree, edits)) == nested(
        tree_of([[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9]]])
    )


def test_weights_count_in_a_split() -> None:
    """K-means by weight; what it is worth is then told by weight as well."""
    tree = flat_tree(ids(*range(6)))
    after, _ = shape(tree, space_of([0, 1, 2, 10, 11, 12], [50, 1, 1, 1, 1, 50]), ALL)
    assert nested(after) == nested(tree_of([[0, 1, 2], [3, 4, 5]]))


@pytest.mark.parametrize("split", [0, 1e-9, 0.05])
def test_places_that_are_one_to_k_means_give_no_warning(split: float) -> None:
    """More parts asked for than k-means can tell apart; warnings are errors here."""
    rng = np.random.default_rng(0)
    base = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 4, axis=0) + 1
    for noise in (0, 1e-17, 1e-16, 1e-15, 1e-13, 1e-11, 1e-9):
        positions = base * (1 + noise * rng.normal(size=base.shape))
        space = Space(ids(*range(12)), positions, np.ones(12))
        after, _ = shape(flat_tree(space.clients), space, only(*OPERATIONS, split=split))
        assert after.is_compact


def test_splits_make_no_more_clusters_than_clients() -> None:
    """The bound that ends a pass without pruning binds no compact tree."""
    compact = tree_of([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    blobs = np.array([0, 0.01, 20, 20.01])
    space = space_of(np.concatenate([blobs, 50 + blobs, 200 + blobs]))
    config = only("split", split=0.05)
    assert len(find_splits(compact, space, config)) == 4
    chain = tree_of([[[[[[[[[[[0, 1, 2, 3]]]]]]]]], [4, 5, 6, 7], [8, 9, 10, 11]]])
    assert len(chain.clusters) > 12
    assert find_splits(chain, space, config) == []
