"""The paper's rules are its Algorithms 1 to 5: equal to a reference written straight from it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sofa_fl.errors import TopologyError
from sofa_fl.topology.config import DmacConfig, ShapeConfig
from sofa_fl.topology.clustering.dmac import paper_dmac
from sofa_fl.topology.clustering.evidence import DistanceEvidence
from sofa_fl.topology.clustering.fast import fast_neighbors
from sofa_fl.topology.clustering.paper_edits import paper_grafts, paper_merges, paper_splits
from sofa_fl.topology.clustering.separation import plain_neighbors
from sofa_fl.topology.clustering.shape import paper_tree_rules, shape
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, Split, apply_all
from tests.topology.paper_reference import (
    algorithm_1,
    algorithm_2,
    algorithm_3,
    algorithm_4,
    algorithm_5,
    merged_pairs,
    split_groups,
)
from tests.topology.strategies import generic_places, ids, nested, node, only, space_of, tree_of

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


def seen(tree: Tree, space: Space) -> DistanceEvidence:
    """All that the paper's rules look at."""
    return DistanceEvidence(tree, space)


@pytest.mark.parametrize("gamma", [1.0, 1.1, 1.5, 3.0])
def test_algorithm_1(gamma: float) -> None:
    for seed in SEEDS:
        _, space, _ = world(seed)
        expected = algorithm_1(space, gamma)
        for neighbors in (fast_neighbors, plain_neighbors):
            tree = paper_dmac(space, DmacConfig(increase=gamma), 0, neighbors)
            assert tree == expected


def test_algorithms_2_to_5() -> None:
    """Every one of them does something in many of the worlds, and leaves others alone."""
    done = Counter[str]()
    for seed in SEEDS:
        tree, space, config = world(seed)
        rules, evidence = paper_tree_rules(), DistanceEvidence(tree, space)
        grafts = rules.graft(tree, evidence, config)
        assert set(grafts) == algorithm_2(tree, space, config)
        assert len(grafts) == len(set(grafts))
        prunes = rules.prune(tree, evidence, config)
        assert set(prunes) == algorithm_3(tree)
        tree = apply_all(tree, prunes)
        merges = rules.merge(tree, evidence, config)
        assert merged_pairs(merges) == algorithm_4(tree, space, config)
        splits = rules.split(tree, evidence, config)
        assert split_groups(splits) == algorithm_5(tree, space, config)
        new = [e.into for e in merges if isinstance(e, Merge)]
        assert new == [tree.next_id + k for k in range(len(new))]
        parts = [part for e in splits if isinstance(e, Split) for part in e.into]
        assert parts == [tree.next_id + k for k in range(len(parts))]
        done.update(type(e).__name__ for e in [*grafts, *prunes, *merges, *splits])
        done.update(["quiet"] * (not grafts and not merges))
    assert min(done[name] for name in ("Graft", "Prune", "Merge", "Split", "quiet")) > 5, done


def test_shape_is_one_pass_that_ends_with_pruning() -> None:
    for seed in SEEDS[:15]:
        tree, space, config = world(seed)
        expected, history = tree, list[Edit]()
        rules, evidence = paper_tree_rules(), DistanceEvidence(tree, space)
        for rule in (rules.graft, rules.merge, rules.split, rules.prune):
            edits = rule(expected, evidence, config)
            expected, history = apply_all(expected, edits), history + edits
        assert shape(tree, evidence, config, rules)[:2] == (expected, history)


def test_a_parent_includes_the_node_that_may_leave_it() -> None:
    """Client 0 is most of its cluster: it holds itself in place, unlike by our rules."""
    tree, config = tree_of([[0, 1], [2, 3]]), only("graft")
    space = space_of([0, 6, 3, 3.1], [1000, 1, 1, 1])
    assert paper_grafts(tree, seen(tree, space), config) == [Graft(node(1), node(6))]


def test_the_tolerance_is_strict() -> None:
    """Client 2 is 6 from the mean of its cluster, with it, and 4 from the other: 4 · 1.5 = 6."""
    tree, space = tree_of([[0, 1, 2], [3, 4]]), space_of([0, 0, 9, 13, 13])
    for tolerance, moves in ((0.5, False), (0.49, True)):
        edits = paper_grafts(
            tree, DistanceEvidence(tree, space), only("graft", tolerance=tolerance)
        )
        assert (Graft(node(2), node(7)) in edits) is moves


def test_merge_asks_for_nothing_but_the_distance() -> None:
    """Two tight clusters that are set apart and together too wide are merged all the same."""
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of([0, 0.1, 3, 3.1, 90, 91])
    near = 3 / space.scale
    (merge,) = paper_merges(
        tree, DistanceEvidence(tree, space), only("merge", merge=1.001 * near, split=0)
    )
    assert merge == Merge(ids(7, 8), node(10))
    assert paper_merges(tree, seen(tree, space), only("merge", merge=0.999 * near)) == []


def test_merge_is_strict() -> None:
    """Two pairs on a line, and τ exactly their distance."""
    tree, space = tree_of([[0, 1], [2, 3]]), space_of([0, 0, 4, 4])
    assert paper_merges(tree, seen(tree, space), only("merge", merge=4 / space.scale)) == []


def test_a_cluster_is_split_into_single_children_if_it_must_and_a_root_is_not() -> None:
    space = space_of([0, 10, 20, 500, 501])
    config = only("split", split=0.001)
    tree = tree_of([[0, 1, 2], 3, 4])
    (split,) = paper_splits(tree, seen(tree, space), config)
    assert isinstance(split, Split)
    assert split.groups == (ids(0), ids(1), ids(2))
    even = space_of([0, 10, 20])
    flat = flat_tree(even.clients)
    evidence = DistanceEvidence(flat, even)
    (root,) = paper_splits(flat, evidence, only("split", split=0.75))
    assert isinstance(root, Split)
    assert sorted(map(len, root.groups)) == [1, 2]
    assert paper_splits(flat, evidence, config) == []


def test_a_coherent_cluster_is_not_split() -> None:
    space = space_of([0, 1, 10, 11])
    tree = flat_tree(space.clients)
    assert paper_splits(tree, seen(tree, space), only("split", split=1.0)) == []
    assert len(paper_splits(tree, seen(tree, space), only("split", split=0.99))) == 1


def split_nodes(edits: list[Edit]) -> set[int]:
    return {edit.node for edit in edits if isinstance(edit, Split)}


def test_a_child_without_a_position_keeps_its_cluster_from_being_split() -> None:
    tree = tree_of([[0, 1, 2, 3], 4])
    present = Space(ids(0, 1, 2, 4), np.array([[0.0], [1], [50], [90]]), np.ones(4))
    assert 6 not in split_nodes(paper_splits(tree, seen(tree, present), only("split", split=0.1)))
    everyone = Space(ids(0, 1, 2, 3, 4), np.array([[0.0], [1], [50], [51], [90]]), np.ones(5))
    assert 6 in split_nodes(paper_splits(tree, seen(tree, everyone), only("split", split=0.1)))


def test_dmac_needs_gamma() -> None:
    with pytest.raises(TopologyError, match=r"^the paper's DMAC needs .* gamma.*dmac\.increase$"):
        paper_tree_rules().build(space_of([0, 1]), DmacConfig(), 0)


def test_no_cluster_of_one_child_outlives_a_pass() -> None:
    tree, space = tree_of([[0, 1], [2, 3]]), space_of([0, 1, 0.4, 1.4])
    config = only("graft", "merge", "split", "prune", merge=1, split=2, tolerance=9)
    after, edits, _ = shape(tree, DistanceEvidence(tree, space), config, paper_tree_rules())
    assert edits == [Merge(ids(5, 6), node(7)), Prune(node(4))]
    assert nested(after) == nested(tree_of([0, 1, 2, 3]))


def test_each_cluster_is_merged_once() -> None:
    """Three pairs are near each other, the first with the last of them nearest."""
    tree = tree_of([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]])  # 10: 11 to 15
    space = space_of(np.repeat([0, 1.1, 2, 50, 51], 2))
    edits = paper_merges(tree, seen(tree, space), only("merge", merge=0.5))
    assert edits == [Merge(ids(12, 13), node(16)), Merge(ids(14, 15), node(17))]


def test_with_average_linkage_the_width_of_clusters_counts() -> None:
    """Client 4 is nearer to the mean of the wide cluster, and to the clients of the other."""
    tree = tree_of([[0, 1], [2, 3, 4]])
    for linkage, expected in (("centroid", [Graft(node(4), node(6))]), ("average", [])):
        space = space_of([-30, 30, 6, 6, 1], None, "euclidean", linkage)  # type: ignore[arg-type]
        edits = paper_grafts(tree, seen(tree, space), only("graft"))
        assert [e for e in edits if e.node == 4] == expected  # type: ignore[union-attr]
