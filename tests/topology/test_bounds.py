"""What is ruled out before k-means: never a partition whose parts stand out, and most of noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.clustering import split_candidates as parts
from sofa_fl.topology.clustering.fast import main_part_bounds as mainpart
from sofa_fl.topology.clustering.fast import split_bounds as bounds
from sofa_fl.topology.clustering.fast.mean_distances import Means, means_of
from sofa_fl.topology.clustering.separation import FACTOR
from sofa_fl.topology.clustering.shape import ShapeConfig, find_splits
from sofa_fl.topology.clustering.split_candidates import Parts
from sofa_fl.topology.geometry.node_positions import Floats
from sofa_fl.topology.geometry.space import Metric, Space
from sofa_fl.topology.tree import Tree, flat_tree
from sofa_fl.topology.tree.tree_arrays import Rows
from tests.topology.strategies import examples, ids, space_of, tree_of

Bound = Callable[[Means, Sequence[int]], list[int]]
BOUNDS: tuple[Bound, ...] = (
    bounds._by_sets,
    bounds._by_rows,
    mainpart.without_main_part,
    bounds.possible,
)


def labellings(m: int) -> Iterator[Rows]:
    """Every way to part `m` things into several, at most one of them alone."""

    def grow(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == m:
            yield labels
            return
        for label in range(max(labels, default=-1) + 2):
            yield from grow([*labels, label])

    for labels in grow([]):
        counts = np.bincount(labels)
        if len(counts) > 1 and (counts == 1).sum() <= 1:
            yield np.array(labels)


def stand_out(tree: Tree, space: Space, labels: Rows) -> bool:
    children = tree.arrays.children(0)
    sets = [children[labels == label] for label in range(labels.max() + 1)]
    return Parts(space, space.locate(tree), sets).stand_out()


def root_means(tree: Tree, space: Space) -> Means:
    means = means_of(space, space.locate(tree), tree.arrays.children(0))
    assert means is not None
    return means


def few_children(rng: np.random.Generator) -> tuple[Tree, Space]:
    """Up to seven children, some of them clusters, in groups that hardly stand out, or clearly."""
    m, d = int(rng.integers(3, 7)), int(rng.choice([2, 30, 300]))
    sizes = rng.integers(1, 5, m) if rng.random() < 0.5 else np.ones(m, dtype=int)
    groups = rng.integers(0, 3, m)
    width, own = rng.choice([0.3, 0.6, 1, 3]), rng.choice([0.1, 0.5])
    centres = (width * rng.normal(size=(3, d)))[groups] + rng.normal(size=(m, d)) * 0.5
    positions = np.repeat(centres, sizes, axis=0) + own * rng.normal(size=(sizes.sum(), d))
    ends = np.cumsum(sizes)
    drawn = [[*range(b - a, b)] if a > 1 else int(b) - 1 for a, b in zip(sizes, ends)]
    metric: Metric = "cosine" if rng.random() < 0.3 else "euclidean"
    weights = rng.integers(1, 9, len(positions))
    tree = tree_of([part if isinstance(part, int) else [int(x) for x in part] for part in drawn])
    return tree, space_of(positions, weights, metric, "average")


@examples(60)
@given(st.integers(0, 2**32 - 1))
def test_a_partition_that_stands_out_is_never_ruled_out(seed: int) -> None:
    """Of few children, by looking at all there are."""
    tree, space = few_children(np.random.default_rng(seed))
    means = root_means(tree, space)
    found = {
        int(labels.max()) + 1
        for labels in labellings(len(means.num))
        if means.may_stand_out(labels) and stand_out(tree, space, labels)
    }
    for bound in BOUNDS:
        assert found <= set(bound(means, range(2, 9))), bound


def test_the_examples_are_worth_it() -> None:
    """Some fall into parts, and some are ruled out."""
    open_ones, closed = 0, 0
    for seed in range(40):
        left = bounds.possible(root_means(*few_children(np.random.default_rng(seed))), [2, 3])
        open_ones, closed = open_ones + bool(left), closed + (not left)
    assert min(open_ones, closed) > 3


@examples(60)
@given(st.integers(0, 2**32 - 1))
def test_means_rule_out_no_parts_that_stand_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree, space = few_children(rng)
    means = root_means(tree, space)
    for labels in labellings(len(means.num)):
        if rng.random() < 0.3 and not means.may_stand_out(labels):
            assert not stand_out(tree, space, labels)


@examples(80)
@given(st.integers(0, 2**32 - 1))
def test_planted_parts_of_many_clients_are_never_ruled_out(seed: int) -> None:
    """A large part and small ones, or parts of a size, about as far apart as they must be."""
    rng = np.random.default_rng(seed)
    d = int(rng.choice([10, 60, 300]))
    k = int(rng.integers(2, 6))
    small = rng.integers(2, 30, k - 1).tolist()
    sizes = [int(rng.choice([30, 150])), *small]
    labels = np.repeat(np.arange(k), sizes)
    shift = rng.normal(size=(k, d))
    shift *= (rng.uniform(0.02, 1.0) * 2 * d) ** 0.5 / np.linalg.norm(shift, axis=1, keepdims=True)
    noise = rng.normal(size=(len(labels), d)) * rng.uniform(0.7, 1.1, k)[labels, None]
    space = space_of(shift[labels] + noise, None, "euclidean", "average")
    tree = flat_tree(space.clients)
    if stand_out(tree, space, labels):
        means = root_means(tree, space)
        assert means.may_stand_out(labels)
        for bound in BOUNDS[1:]:
            assert k in bound(means, range(2, 9)), bound


def evenly(sizes: Sequence[int], ratio: float) -> Floats:
    """Groups whose clients are at one distance from each other, and at another from all others."""
    groups = np.repeat(np.eye(len(sizes)), sizes, axis=0)
    return np.hstack([np.eye(len(groups)), (ratio - 1) ** 0.5 * groups])


@pytest.mark.parametrize("sizes", [(3, 3), (6, 6), (5, 5, 5), (9, 4), (100, 10), (250, 10, 5)])
def test_a_bound_holds_to_the_end(sizes: tuple[int, ...]) -> None:
    """Nothing is ruled out that stands out by a thousandth, nor left that does not by as much.

    Of many clients, of which not all pairs are looked at, by a twentieth.
    """
    k, labels = len(sizes), np.repeat(np.arange(len(sizes)), sizes)
    less = 0.999 if len(labels) <= bounds.FEW else 0.95
    for more, expected in ((1.001, True), (less, False)):
        space = space_of(evenly(sizes, FACTOR**2 * more), None, "euclidean", "average")
        tree = flat_tree(space.clients)
        means = root_means(tree, space)
        assert stand_out(tree, space, labels) == means.may_stand_out(labels) == expected
        assert (k in bounds.possible(means, [k])) == expected
        if expected:
            for bound in BOUNDS[1:]:
                assert k in bound(means, [k]), bound


@pytest.mark.parametrize(("n", "d"), [(120, 1000), (600, 1200)])
def test_noise_is_not_asked_of_k_means(n: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "KMeans", None)
    space = space_of(np.random.default_rng(0).normal(size=(n, d)), None, "euclidean", "average")
    assert find_splits(flat_tree(space.clients), space, ShapeConfig()) == []


def test_groups_that_are_clusters_are_not_asked_of_k_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "KMeans", None)
    rng = np.random.default_rng(0)
    positions = np.repeat(rng.normal(size=(10, 64)), 20, axis=0) + 0.5 * rng.normal(size=(200, 64))
    space = space_of(positions, None, "euclidean", "average")
    tree = tree_of([[*range(a, a + 20)] for a in range(0, 200, 20)])
    assert find_splits(tree, space, ShapeConfig()) == []


def outlier_places(far: float) -> Floats:
    positions = np.random.default_rng(0).normal(size=(400, 1000))
    positions[-5:, 0] += far
    return positions


def test_a_few_that_lie_far_outside_leave_it_open() -> None:
    for far, left in ((0.0, False), (30.0, True)):
        space = space_of(outlier_places(far), None, "euclidean", "average")
        means = root_means(flat_tree(ids(*range(400))), space)
        assert (2 in bounds.possible(means, [2])) is left
