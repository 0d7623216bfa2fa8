"""The paper's rules are its Algorithms 1 to 5: equal to a reference written straight from it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sofa_fl.topology.config import DmacConfig, ShapeConfig
from sofa_fl.topology.dmac import dmac
from sofa_fl.topology.edits import Edit, Graft, Merge, Split, apply_all
from sofa_fl.topology.paper import paper_grafts, paper_merges, paper_splits
from sofa_fl.topology.shape import find_prunes
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from tests.topology.paper_reference import (
    algorithm_1,
    algorithm_2,
    algorithm_3,
    algorithm_4,
    algorithm_5,
    merged_pairs,
    split_groups,
)
from tests.topology.strategies import generic_places, ids, node, only, space_of, tree_of

SEEDS = range(40)


def random_tree(rng: np.random.Generator, clients: tuple[NodeId, ...]) -> Tree:
    """Clients put together at random, and clusters too, until one is left; some have one child."""
    nodes, parent = list(clients), dict[NodeId, NodeId | None]()
    next_id = 1 + max(clients)
    while len(nodes) > 1:
        size = int(rng.integers(1 if rng.random() < 0.2 else 2, min(5, len(nodes)) + 1))
        chosen = [nodes.pop(int(rng.integers(len(nodes)))) for _ in range(size)]
        parent |= dict.fromkeys(chosen, NodeId(next_id))
        nodes.append(NodeId(next_id))
        next_id += 1
    return Tree({nodes[0]: None, **parent}, clients, next_id)


def world(seed: int) -> tuple[Tree, Space, ShapeConfig]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 16))
    positions = generic_places(rng, n, int(rng.integers(1, 4)), bool(seed % 2), 0.1)
    weights = rng.integers(1, 9, n).astype(np.float64) if seed % 3 else np.ones(n)
    space = Space(ids(*range(n)), positions, weights)
    config = ShapeConfig(
        tolerance=float(rng.choice([0.0, 0.1, 0.5])),
        merge=float(rng.choice([0.2, 0.6, 1.2])),
        split=float(rng.choice([0.1, 0.4, 0.8])),
    )
    return random_tree(rng, space.clients), space, config


def tied(seed: int) -> tuple[Tree, Space, ShapeConfig]:
    """A world on a grid, where many are at one place, or as near, and thresholds are met."""
    rng = np.random.default_rng(seed)
    n, dimensions = int(rng.integers(2, 9)), int(rng.integers(1, 3))
    positions = rng.integers(0, rng.integers(2, 6), (n, dimensions)).astype(np.float64)
    weights = rng.integers(1, 4, n).astype(np.float64) if seed % 3 else np.ones(n)
    space = Space(ids(*range(n)), positions, weights)
    config = ShapeConfig(
        tolerance=float(rng.choice([0.0, 0.5, 1.0])),
        merge=float(rng.choice([0.5, 1.0, 2.0])),
        split=float(rng.choice([0.5, 1.0])),
    )
    return random_tree(rng, space.clients), space, config


@pytest.mark.parametrize("gamma", [1.0, 1.1, 1.5, 3.0])
def test_algorithm_1(gamma: float) -> None:
    for make, seeds in ((world, SEEDS), (tied, range(250))):
        for seed in seeds:
            space = make(seed)[1]
            assert dmac(space, DmacConfig(increase=gamma)) == algorithm_1(space, gamma)


@pytest.mark.parametrize("first", [0, 1000])
def test_algorithms_2_to_4_with_ties(first: int) -> None:
    done = Counter[str]()
    for seed in range(first, first + 1000):
        tree, space, config = tied(seed)
        grafts = paper_grafts(tree, space, config)
        assert set(grafts) == algorithm_2(tree, space, config)
        merges = paper_merges(tree, space, config)
        assert merged_pairs(merges) == algorithm_4(tree, space, config)
        assert set(find_prunes(tree)) == algorithm_3(tree)
        done.update(type(e).__name__ for e in [*grafts, *merges])
    assert min(done["Graft"], done["Merge"]) > 50, done


@pytest.mark.parametrize("unit", [1.0, 0.1, 1 / 3, 1e-5])
def test_rounding_does_not_choose_between_parents_or_pairs_that_are_as_near(unit: float) -> None:
    """The same world in another unit, in which equal distances differ in the last digit."""
    for seed in (2787, 8234, 10263, 10797, *range(300)):
        rng = np.random.default_rng(seed)
        n, dimensions = int(rng.integers(4, 11)), int(rng.integers(1, 4))
        places = rng.integers(0, 4, (n, dimensions)).astype(np.float64)
        weights = rng.choice([1.0, 3, 5, 7], n) if seed % 3 else np.ones(n)
        space, exact = (Space(ids(*range(n)), u * places, weights) for u in (unit, 1.0))
        tree = random_tree(rng, space.clients)
        config = ShapeConfig(
            tolerance=float(rng.choice([0, 0.5, 1, 0.1])), merge=float(rng.choice([0.5, 1, 2]))
        )
        assert set(paper_grafts(tree, space, config)) == algorithm_2(tree, exact, config)
        merges = merged_pairs(paper_merges(tree, space, config))
        assert merges == algorithm_4(tree, exact, config)


def test_algorithm_5_with_ties() -> None:
    done = Counter[bool]()
    for seed in range(100):
        tree, space, config = tied(seed)
        splits = split_groups(paper_splits(tree, space, config))
        assert splits == algorithm_5(tree, space, config)
        done[bool(splits)] += 1
    assert min(done.values()) > 10, done


def test_a_flat_tree_is_never_split_at_one() -> None:
    """Its incoherence is one, whatever the positions, but for rounding."""
    for seed in range(300):
        space = world(seed)[1]
        assert paper_splits(flat_tree(space.clients), space, ShapeConfig(split=1.0)) == []


def test_algorithms_2_to_5() -> None:
    """Every one of them does something in many of the worlds, and leaves others alone."""
    done = Counter[str]()
    for seed in SEEDS:
        tree, space, config = world(seed)
        grafts = paper_grafts(tree, space, config)
        assert set(grafts) == algorithm_2(tree, space, config)
        assert len(grafts) == len(set(grafts))
        prunes = find_prunes(tree)
        assert set(prunes) == algorithm_3(tree)
        tree = apply_all(tree, prunes)
        merges = paper_merges(tree, space, config)
        assert merged_pairs(merges) == algorithm_4(tree, space, config)
        splits = paper_splits(tree, space, config)
        assert split_groups(splits) == algorithm_5(tree, space, config)
        new = [e.into for e in merges if isinstance(e, Merge)]
        assert new == [tree.next_id + k for k in range(len(new))]
        parts = [part for e in splits if isinstance(e, Split) for part in e.into]
        assert parts == [tree.next_id + k for k in range(len(parts))]
        done.update(type(e).__name__ for e in [*grafts, *prunes, *merges, *splits])
        done.update(["quiet"] * (not grafts and not merges))
    assert min(done[name] for name in ("Graft", "Prune", "Merge", "Split", "quiet")) > 5, done


def test_a_parent_includes_the_node_that_may_leave_it() -> None:
    """Client 0 is most of its cluster: it holds itself in place, unlike by our rules."""
    tree, config = tree_of([[0, 1], [2, 3]]), only("graft")
    space = space_of([0, 6, 3, 3.1], [1000, 1, 1, 1])
    assert paper_grafts(tree, space, config) == [Graft(node(1), node(6))]


def test_the_tolerance_is_strict() -> None:
    """Client 2 is 6 from the mean of its cluster, with it, and 4 from the other: 4 · 1.5 = 6."""
    tree, space = tree_of([[0, 1, 2], [3, 4]]), space_of([0, 0, 9, 13, 13])
    for tolerance, moves in ((0.5, False), (0.49, True)):
        edits = paper_grafts(tree, space, only("graft", tolerance=tolerance))
        assert (Graft(node(2), node(7)) in edits) is moves


def test_merge_asks_for_nothing_but_the_distance() -> None:
    """Two tight clusters that are set apart and together too wide are merged all the same."""
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of([0, 0.1, 3, 3.1, 90, 91])
    near = 3 / space.scale
    (merge,) = paper_merges(tree, space, only("merge", merge=1.001 * near, split=0))
    assert merge == Merge(ids(7, 8), node(10))
    assert paper_merges(tree, space, only("merge", merge=0.999 * near)) == []


def test_merge_is_strict() -> None:
    """Two pairs on a line, and τ exactly their distance."""
    tree, space = tree_of([[0, 1], [2, 3]]), space_of([0, 0, 4, 4])
    assert paper_merges(tree, space, only("merge", merge=4 / space.scale)) == []


def test_a_cluster_is_split_into_single_children_if_it_must_and_a_root_is_not() -> None:
    space = space_of([0, 10, 20, 500, 501])
    config = only("split", split=0.001)
    tree = tree_of([[0, 1, 2], 3, 4])
    (split,) = paper_splits(tree, space, config)
    assert isinstance(split, Split)
    assert split.groups == (ids(0), ids(1), ids(2))
    even = space_of([0, 10, 20])
    flat = flat_tree(even.clients)
    (root,) = paper_splits(flat, even, only("split", split=0.75))
    assert isinstance(root, Split)
    assert sorted(map(len, root.groups)) == [1, 2]
    assert paper_splits(flat, even, config) == []


def test_a_coherent_cluster_is_not_split() -> None:
    space = space_of([0, 1, 10, 11])
    tree = flat_tree(space.clients)
    assert paper_splits(tree, space, only("split", split=1.0)) == []
    assert len(paper_splits(tree, space, only("split", split=0.99))) == 1


def split_nodes(edits: list[Edit]) -> set[int]:
    return {edit.node for edit in edits if isinstance(edit, Split)}


def test_a_child_without_a_position_keeps_its_cluster_from_being_split() -> None:
    tree = tree_of([[0, 1, 2, 3], 4])
    present = Space(ids(0, 1, 2, 4), np.array([[0.0], [1], [50], [90]]), np.ones(4))
    assert 6 not in split_nodes(paper_splits(tree, present, only("split", split=0.1)))
    everyone = Space(ids(0, 1, 2, 3, 4), np.array([[0.0], [1], [50], [51], [90]]), np.ones(5))
    assert 6 in split_nodes(paper_splits(tree, everyone, only("split", split=0.1)))


def test_each_cluster_is_merged_once() -> None:
    """Three pairs are near each other, the first with the last of them nearest."""
    tree = tree_of([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]])  # 10: 11 to 15
    space = space_of(np.repeat([0, 1.1, 2, 50, 51], 2))
    edits = paper_merges(tree, space, only("merge", merge=0.5))
    assert edits == [Merge(ids(12, 13), node(16)), Merge(ids(14, 15), node(17))]


def test_with_average_linkage_the_width_of_clusters_counts() -> None:
    """Client 4 is nearer to the mean of the wide cluster, and to the clients of the other."""
    tree = tree_of([[0, 1], [2, 3, 4]])
    for linkage, expected in (("centroid", [Graft(node(4), node(6))]), ("average", [])):
        space = space_of([-30, 30, 6, 6, 1], None, "euclidean", linkage)  # type: ignore[arg-type]
        edits = paper_grafts(tree, space, only("graft"))
        assert [e for e in edits if e.node == 4] == expected  # type: ignore[union-attr]
