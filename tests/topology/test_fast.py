"""One property of all that is fast: the same trees and edits with and without, in any world."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.clustering.default_splits import certain_parts, groups_of_clients
from sofa_fl.topology.clustering.dmac import dmac, quickest
from sofa_fl.topology.clustering.evidence import DistanceEvidence
from sofa_fl.topology.clustering.fast import block_distances, fast_neighbors
from sofa_fl.topology.clustering.fast.block_distances import FastSeparation
from sofa_fl.topology.clustering.fast.nearest import FastNeighbors
from sofa_fl.topology.clustering.separation import Nearness, Separation, plain_neighbors
from sofa_fl.topology.clustering.shape import shape
from sofa_fl.topology.space import DistanceMetric, Floats, Linkage, Neighbors, Space
from sofa_fl.topology.tree import NodeId, Rows, Tree
from sofa_fl.topology.edits import Split
from tests.topology.strategies import ALL, WAYS, Drawn, ids, node, space_of, tied_places, tree_of

PLAIN, FAST = plain_neighbors, fast_neighbors
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


def case(seed: int, kind: str, n: int, way: tuple[DistanceMetric, Linkage]) -> Space:
    """A space: positions of a kind, weights and all."""
    rng = np.random.default_rng(seed)
    d = int(rng.choice([3, 5, 40, 200]))
    positions = positions_of(kind, n, d, rng) + (2.0 if way[0] == "cosine" else 0.0)
    weights = np.ones(n) if seed % 2 else rng.integers(1, 60, n).astype(np.float64)
    return Space(ids(*range(n)), positions, weights, *way)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("kind", KINDS)
def test_same_trees_with_and_without(kind: str, way: tuple[DistanceMetric, Linkage]) -> None:
    sizes = (*SIZES, 70) if way == ("euclidean", "average") else SIZES
    for seed, n in enumerate(sizes):
        space = case(seed, kind, n, way)
        for increase in (None, 1.0, 1.2):
            config = DmacConfig(increase=increase)
            assert_same_tree(dmac(space, config, 0, PLAIN), dmac(space, config, 0, FAST))


@pytest.mark.parametrize("num", [300, 301])
def test_the_plain_form_is_for_few_clients(num: int) -> None:
    nodes, test = quickest(space_of(np.zeros((num, 2)), linkage="average"))
    fast = (FastNeighbors, FastSeparation)
    assert (type(nodes), type(test)) == ((Neighbors, Separation) if num == 300 else fast)


def anew(space: Space) -> Space:
    """The same space without the trees that it remembers."""
    return replace(space)


def always(form: Nearness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sofa_fl.topology.clustering.dmac.quickest", form)


def assert_same_tree(a: Tree, b: Tree) -> None:
    assert list(a.parent.items()) == list(b.parent.items())
    assert (a.clients, a.next_id) == (b.clients, b.next_id)


@pytest.mark.parametrize("kind", ["noise", "groups", "nested"])
def test_the_same_with_hundreds_of_clients(kind: str) -> None:
    rng = np.random.default_rng(200)
    positions = positions_of(kind, 200, 60, rng)
    space = space_of(positions, rng.integers(1, 60, 200), linkage="average")
    assert_same_tree(dmac(space, DmacConfig(), 0, PLAIN), dmac(space, DmacConfig(), 0, FAST))


@pytest.mark.parametrize("block", [1, 50])
def test_blocks_of_distances_make_no_difference(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_distances, "BLOCK", block)
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

    class Fast(FastNeighbors):
        def distances(self, a: Rows, b: Rows) -> Floats:
            measured["fast"] += len(a) * len(b)
            return super().distances(a, b)

        def _measure_block(self, slots: Rows) -> tuple[Floats, Floats]:
            measured["fast"] += len(slots) * len(self._row)
            return super()._measure_block(slots)

    space = space_of(positions_of("nested", 300, 60, np.random.default_rng(0)), linkage="average")
    config, test = DmacConfig(increase=1), Separation(space)
    dmac(space, config, 0, lambda space: (Plain(space), test))
    dmac(space, config, 0, lambda space: (Fast(space), test))
    assert 300**2 < measured["fast"] < 0.2 * measured["plain"], measured


def families(space: Space, lone: int, rng: np.random.Generator) -> dict[NodeId, list[NodeId]]:
    """Clients alone, and small clusters of neighbors that groups may cut through."""
    tree = dmac(space, DmacConfig(certain=False))
    clients, num = tree.clients_of(tree.root), len(space.clients)
    ends = lone + rng.integers(2, 4, num).cumsum()
    clusters = [list(clients[a:b]) for a, b in pairwise([lone, *ends[ends < num], num])]
    alone = {client: [client] for client in clients[:lone]}
    return alone | {node(num + at): below for at, below in enumerate(clusters)}


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_same_parts_with_and_without(
    way: tuple[DistanceMetric, Linkage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of clients and parts of clusters, beside each other, and with groups in between."""
    found = Counter[str]()
    for seed in range(56):
        rng = np.random.default_rng(seed)
        space = sorted_case(seed, KINDS[seed % len(KINDS)], 24, way)
        children = families(space, int(rng.choice([0, 6, 12, 20])), rng)
        for find in (groups_of_clients, certain_parts):
            always(PLAIN, monkeypatch)
            plain = find(children, DistanceEvidence(tree_of(range(24)), anew(space)))
            always(FAST, monkeypatch)
            fast = find(children, DistanceEvidence(tree_of(range(24)), anew(space)))
            assert plain == fast
            kinds = ["clients" if part[0] < 24 else "clusters" for part in plain]
            found.update(f"{find.__name__}: {kind}" for kind in kinds)
    assert found["groups_of_clients: clients"] > 10, found
    assert found["certain_parts: clients"] > 10, found
    assert found["certain_parts: clusters"] > 10, found


def sorted_case(seed: int, kind: str, n: int, way: tuple[DistanceMetric, Linkage]) -> Space:
    """As `case`, those that are near in one coordinate one after the other, in all directions."""
    space = case(seed, kind, n, way)
    order = np.argsort(space.positions[:, 0])
    return replace(space, positions=(space.positions - space.positions.mean(axis=0))[order])


# Wide and deep, with clients beside clusters and clusters beside clusters.
DRAWN: tuple[Drawn, ...] = (
    [[[*range(7)], [*range(7, 14)]], [*range(14, 22)], [*range(22, 30)]],
    [*range(30)],
    [[*range(12)], *range(12, 30)],
    [[2 * k, 2 * k + 1] for k in range(15)],
    [[[0, 1, 2], [3, 4], 5, 6, 7], [[8, 9], [10, 11], [12, 13], 14, 15], *range(16, 30)],
)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("kind", KINDS)
def test_same_edits_with_and_without(
    kind: str, way: tuple[DistanceMetric, Linkage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round after round, whether losses tell much apart or nothing: then DMAC alone decides."""
    splits, times = Counter[float](), 2 if way == ("euclidean", "average") else 1
    for seed, drawn in enumerate(DRAWN * times):
        space, tree = sorted_case(seed, kind, 30, way), tree_of(drawn)
        unit = (2.0, 1e9)[seed % 2]
        for round in range(2):
            loss = unit * space.scale**2 or 1.0
            always(PLAIN, monkeypatch)
            plain = shape(tree, DistanceEvidence(tree, anew(space), loss, round), ALL)
            always(FAST, monkeypatch)
            fast = shape(tree, DistanceEvidence(tree, anew(space), loss, round), ALL)
            assert plain[1] == fast[1]
            assert replace(plain[2], space=space) == replace(fast[2], space=space)
            assert_same_tree(plain[0], fast[0])
            splits[unit] += sum(isinstance(edit, Split) for edit in plain[1])
            tree = plain[0]
    if kind in ("groups", "nested", "equal", "far"):
        assert splits[2.0], "some that gain"
        assert splits[1e9], "some that are certain"
