"""One property of all that is fast: the same trees and edits with and without, in any world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.config import DmacConfig, ShapeConfig
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.fast import FastCandidates
from sofa_fl.topology.clustering.fast import nearest_neighbors as module
from sofa_fl.topology.clustering.shape import default_tree_rules, shape
from sofa_fl.topology.geometry.space import Floats, Linkage, Metric, NodePositions, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import count_edits
from sofa_fl.topology.tree.tree_arrays import Rows
from tests.topology.strategies import WAYS, ids, like_models, space_of, tied_places
from tests.topology.test_paper_edits import random_tree

PLAIN, FAST = Candidates(), FastCandidates()
KINDS = ("noise", "groups", "nested", "equal", "ties", "far", "outliers", "empty")
SIZES = (2, 3, 6, 11, 24)


def positions_of(kind: str, n: int, d: int, rng: np.random.Generator) -> Floats:
    noise = rng.normal(size=(n, d))
    if kind == "noise":
        return noise
    if kind == "ties":
        return tied_places(rng, n, d) if d < 9 else np.eye(n, d)
    outer = rng.normal(size=(5, d)) * rng.choice([0.4, 1, 3])
    inner = rng.normal(size=(5, 3, d))
    group, part = rng.integers(0, 5, n), rng.integers(0, 3, n)
    if kind == "nested":
        return np.asarray(outer[group] * 3 + inner[group, part] + 0.4 * noise)
    if kind == "equal":
        return np.asarray(outer[group] + 0.3 * noise[part])  # up to fifteen different positions
    if kind == "far":
        return np.asarray(outer[group] + 0.5 * noise + 10.0 ** rng.integers(3, 7))
    if kind == "outliers":
        noise[: max(1, n // 9)] += rng.choice([1, 5]) * rng.normal(size=d)
        return noise
    return np.asarray(outer[group] + 0.5 * noise)


def case(seed: int, kind: str, n: int, way: tuple[Metric, Linkage]) -> tuple[Space, Tree]:
    """A space, and any tree over its clients; of "empty" kind, some are not in the space."""
    rng = np.random.default_rng(seed)
    d = int(rng.choice([3, 5, 40, 200]))
    positions = positions_of(kind, n, d, rng) + (2.0 if way[0] == "cosine" else 0.0)
    weights = np.ones(n) if seed % 2 else rng.integers(1, 60, n).astype(np.float64)
    clients = ids(*range(n))
    tree = random_tree(rng, clients)
    if kind != "empty":
        return Space(clients, positions, weights, *way), tree
    heard = np.flatnonzero(rng.random(n) < 0.6)
    heard = heard if len(heard) else np.arange(1)
    return Space(ids(*heard.tolist()), positions[heard], weights[heard], *way), tree


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("kind", KINDS)
def test_same_trees_and_edits_with_and_without(kind: str, way: tuple[Metric, Linkage]) -> None:
    config = ShapeConfig()
    sizes = (*SIZES, 70) if way == ("euclidean", "average") else SIZES
    for seed, n in enumerate(sizes):
        space, tree = case(seed, kind, n, way)
        for increase in (None, 1.0, 1.2):
            built = [dmac(space, DmacConfig(increase=increase), 0, c) for c in (PLAIN, FAST)]
            assert_same_tree(*built)
        plain, fast = (default_tree_rules(candidates) for candidates in (PLAIN, FAST))
        assert shape(tree, space, config, fast) == shape(tree, space, config, plain)
        if kind != "empty":
            for rule in ("merge", "split"):
                expected = getattr(plain, rule)(built[0], space, config)
                assert getattr(fast, rule)(built[0], space, config) == expected, rule


def assert_same_tree(a: Tree, b: Tree) -> None:
    assert list(a.parent.items()) == list(b.parent.items())
    assert (a.clients, a.next_id) == (b.clients, b.next_id)


@pytest.mark.parametrize("kind", ["noise", "groups", "nested"])
@pytest.mark.parametrize("n", [200])
def test_the_same_with_hundreds_of_clients_that_move(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    positions = positions_of(kind, n, 60, rng)
    space = space_of(positions, rng.integers(1, 60, n), linkage="average")
    trees = [dmac(space, DmacConfig(), 0, candidates) for candidates in (PLAIN, FAST)]
    assert_same_tree(*trees)
    moved = positions + 0.1 * rng.normal(size=positions.shape)
    moved[: n // 10] = positions[rng.permutation(n)[: n // 10]]
    after = space_of(moved, space.weights, linkage="average")
    plain, fast = (
        shape(trees[0], after, ShapeConfig(), default_tree_rules(candidates))
        for candidates in (PLAIN, FAST)
    )
    assert fast == plain
    assert kind == "noise" or count_edits(fast[1])["graft"] > 0


@pytest.mark.parametrize("block", [1, 50])
def test_blocks_of_distances_make_no_difference(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    for seed, kind in enumerate(KINDS[:-1]):
        space, _ = case(seed, kind, 30, ("euclidean", "average"))
        for increase in (None, 1.2):
            config = DmacConfig(increase=increase)
            assert_same_tree(dmac(space, config, 0, PLAIN), dmac(space, config, 0, FAST))


def test_what_is_planted_is_not_ruled_out() -> None:
    """Parts that hardly stand out, of few clients and of many: k-means is asked, and splits."""
    splits = Counter[bool]()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        d, k = int(rng.choice([10, 60, 300])), int(rng.integers(2, 5))
        sizes = [int(rng.choice([3, 30, 150])), *rng.integers(2, 30, k - 1).tolist()]
        labels = np.repeat(np.arange(k), sizes)
        shift = rng.normal(size=(k, d))
        shift *= (rng.uniform(0.1, 1) * 2 * d) ** 0.5 / np.linalg.norm(shift, axis=1)[:, None]
        noise = rng.normal(size=(len(labels), d)) * rng.uniform(0.7, 1.1, k)[labels, None]
        space = space_of(shift[labels] + noise, None, "euclidean", "average")
        tree = Tree(
            {NodeId(len(labels)): None} | dict.fromkeys(space.clients, NodeId(len(labels))),
            space.clients,
            len(labels) + 1,
        )
        plain, fast = (
            default_tree_rules(candidates).split(tree, space, ShapeConfig(split=0.3))
            for candidates in (PLAIN, FAST)
        )
        assert fast == plain
        splits[bool(plain)] += 1
    assert min(splits[True], splits[False]) > 4, splits


class Watched(FastCandidates):
    """Counts the candidates given and kept."""

    def __init__(self) -> None:
        self.given, self.kept = Counter[str](), Counter[str]()

    def merges(self, space: Space, nodes: NodePositions, a: Rows, b: Rows) -> tuple[Rows, Rows]:
        kept = super().merges(space, nodes, a, b)
        self.given["merges"] += len(a)
        self.kept["merges"] += len(kept[0])
        return kept

    def splits(
        self, space: Space, nodes: NodePositions, numbers: Mapping[int, Sequence[int]]
    ) -> Mapping[int, Sequence[int]]:
        kept = super().splits(space, nodes, numbers)
        self.given["splits"] += sum(map(len, numbers.values()))
        self.kept["splits"] += sum(map(len, kept.values()))
        return kept


@pytest.mark.parametrize(
    ("positions", "part"),
    [
        (positions_of("nested", 300, 60, np.random.default_rng(0)), "merges"),
        (like_models(np.random.default_rng(0), 8, 2, 10), "splits"),
    ],
    ids=["merges", "splits"],
)
def test_most_candidates_are_dropped(positions: Floats, part: str) -> None:
    """Else a bound that drops nothing would pass for a fast one."""
    watched = Watched()
    space = space_of(positions, linkage="average")
    config = ShapeConfig(split=0.1, merge=2)
    assert shape(dmac(space, DmacConfig()), space, config, default_tree_rules(watched))[1] == []
    assert watched.given[part] > 20
    assert watched.kept[part] < 0.2 * watched.given[part]
