"""One property of all that is fast: the same trees and edits with and without, in any world."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from sofa_fl.topology.clustering import default_splits, separation
from sofa_fl.topology.clustering import fast as module
from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.default_splits import proposed_parts
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.evidence import DistanceEvidence
from sofa_fl.topology.clustering.shape import default_tree_rules, shape
from sofa_fl.topology.geometry.space import Floats, Linkage, Metric, Neighbors, Space
from sofa_fl.topology.tree import NodeId, Rows, Tree
from tests.topology.strategies import ALL, WAYS, ids, node, space_of, tied_places, tree_of
from tests.topology.worlds import apart

PLAIN, FAST, DEFAULT = Neighbors, module.FastNeighbors, None
KINDS = ("noise", "groups", "nested", "equal", "ties", "far", "outliers")
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


def case(seed: int, kind: str, n: int, way: tuple[Metric, Linkage]) -> Space:
    """A space: positions of a kind, weights and all."""
    rng = np.random.default_rng(seed)
    d = int(rng.choice([3, 5, 40, 200]))
    positions = positions_of(kind, n, d, rng) + (2.0 if way[0] == "cosine" else 0.0)
    weights = np.ones(n) if seed % 2 else rng.integers(1, 60, n).astype(np.float64)
    return Space(ids(*range(n)), positions, weights, *way)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("kind", KINDS)
def test_same_trees_with_and_without(kind: str, way: tuple[Metric, Linkage]) -> None:
    sizes = (*SIZES, 70) if way == ("euclidean", "average") else SIZES
    for seed, n in enumerate(sizes):
        space = case(seed, kind, n, way)
        for increase in (None, 1.0, 1.2):
            config = DmacConfig(increase=increase)
            plain, fast, default = (dmac(space, config, 0, c) for c in (PLAIN, FAST, DEFAULT))
            assert_same_tree(plain, fast)
            assert_same_tree(plain, default)


def assert_same_tree(a: Tree, b: Tree) -> None:
    assert list(a.parent.items()) == list(b.parent.items())
    assert (a.clients, a.next_id) == (b.clients, b.next_id)


@pytest.mark.parametrize("kind", ["noise", "groups", "nested"])
def test_the_same_with_hundreds_of_clients(kind: str) -> None:
    rng = np.random.default_rng(200)
    positions = positions_of(kind, 200, 60, rng)
    space = space_of(positions, rng.integers(1, 60, 200), linkage="average")
    plain, fast, default = (dmac(space, DmacConfig(), 0, c) for c in (PLAIN, FAST, DEFAULT))
    assert_same_tree(plain, fast)
    assert_same_tree(plain, default)


@pytest.mark.parametrize("block", [1, 50])
def test_blocks_of_distances_make_no_difference(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(separation, "BLOCK", block)
    for seed, kind in enumerate(KINDS):
        space = case(seed, kind, 30, ("euclidean", "average"))
        for increase in (None, 1.2):
            config = DmacConfig(increase=increase)
            assert_same_tree(dmac(space, config, 0, PLAIN), dmac(space, config, 0, FAST))


def test_few_distances_are_measured() -> None:
    """Else a bound that drops nothing would pass for a fast one."""
    measured = Counter[str]()

    class Plain(Neighbors):
        def distances(self, a: Rows, b: Rows) -> Floats:
            measured["plain"] += len(a) * len(b)
            return super().distances(a, b)

    class Fast(module.FastNeighbors):
        def distances(self, a: Rows, b: Rows) -> Floats:
            measured["fast"] += len(a) * len(b)
            return super().distances(a, b)

        def _measure_block(self, slots: Rows) -> tuple[Floats, Floats]:
            measured["fast"] += len(slots) * len(self._row)
            return super()._measure_block(slots)

    space = space_of(positions_of("nested", 300, 60, np.random.default_rng(0)), linkage="average")
    for kind in (Plain, Fast):
        dmac(space, DmacConfig(increase=1), 0, kind)
    assert 300**2 < measured["fast"] < 0.2 * measured["plain"], measured


def families(num: int, lone: int, rng: np.random.Generator) -> dict[NodeId, list[NodeId]]:
    """Some clients alone and the others in clusters of neighbors, which groups may cut through."""
    clients = ids(*range(num))
    cuts = [lone, *(lone + 2 * np.unique(rng.integers(1, (num - lone) // 2, 4))), num]
    clusters = [list(clients[a:b]) for a, b in pairwise(cuts)]
    alone = {client: [client] for client in clients[:lone]}
    return alone | {node(num + at): below for at, below in enumerate(clusters)}


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_no_part_is_missed(way: tuple[Metric, Linkage]) -> None:
    """Where `may_be_clear` says no, the plain rules find no part."""
    said, parts = Counter[bool](), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        space = sorted_case(seed, KINDS[seed % len(KINDS)], 24, way)
        children = families(24, int(rng.choice([0, 0, 1, 3])), rng)
        evidence = DistanceEvidence(tree_of(range(24)), space)
        plain = proposed_parts(children, evidence, PLAIN)
        assert proposed_parts(children, evidence) == plain
        parts += len(plain)
        said[module.may_be_clear([len(below) for below in children.values()], space)] += 1
    assert parts
    assert said[True]
    assert said[False] or way[0] == "manhattan", said


def sorted_case(seed: int, kind: str, n: int, way: tuple[Metric, Linkage]) -> Space:
    """As `case`, those that are near in one coordinate one after the other, in all directions."""
    space = case(seed, kind, n, way)
    order = np.argsort(space.positions[:, 0])
    return replace(space, positions=(space.positions - space.positions.mean(axis=0))[order])


@pytest.mark.parametrize("kind", KINDS)
def test_same_edits_with_and_without(kind: str) -> None:
    for seed in range(6):
        space = sorted_case(seed, kind, 30, ("euclidean", "average"))
        first, second = [*range(7)], [*range(7, 14)]
        tree = tree_of([[first, second], [*range(14, 22)], [*range(22, 30)]])
        evidence = DistanceEvidence(tree, space, 2 * space.scale**2 or 1.0)
        plain, default = (
            shape(tree, evidence, ALL, default_tree_rules(nearness)) for nearness in (PLAIN, None)
        )
        assert plain[1] == default[1]
        assert_same_tree(plain[0], default[0])


@pytest.mark.parametrize(("times", "may"), [(0.999, False), (1.001, True)])
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_parts_may_be_clear_from_the_same_ratio_on_as_they_are(
    times: float, may: bool, shift: float
) -> None:
    space = space_of(shift + apart([4, 4], 1.5**2 * times), linkage="average")
    assert module.may_be_clear([2, 2, 2, 2], space) == may
    assert module.may_be_clear([2, 2, 2, 1, 1], space), "two clients need not be clear"
    assert module.may_be_clear([2, 2, 3, 1], space) == may, "one is no part"
    directions = Space(space.clients, apart([4, 4], 1.5 * times), space.weights, "cosine")
    assert module.may_be_clear([2, 2, 2, 2], directions) == may


def test_plain_neighbors_go_without_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    space = space_of(apart([4, 4], 4.0), linkage="average")
    evidence = DistanceEvidence(tree_of(range(8)), space)
    children = {node(100 + k): list(ids(2 * k, 2 * k + 1)) for k in range(4)}
    parts = [ids(100, 101), ids(102, 103)]
    assert proposed_parts(children, evidence) == parts
    monkeypatch.setattr(default_splits, "may_be_clear", lambda sizes, space: False)
    assert proposed_parts(children, evidence) == []
    assert proposed_parts(children, evidence, PLAIN) == parts


def test_what_rounding_may_change_may_be_clear() -> None:
    equal = space_of(np.zeros((6, 3)))
    assert module.may_be_clear([2, 2, 2], equal)
    far = np.eye(6) + np.array([[1e7, 0, 0, 0, 0, 0]] + 5 * [[0.0] * 6])
    assert module.may_be_clear([1, 2, 3], space_of(far))
