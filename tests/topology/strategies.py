"""Random trees, positions and settings for the topology tests, and how to compare trees.

The suite draws the same examples every time; `tests/conftest.py` says how to draw others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from sofa_fl.topology.config import Operation, ShapeConfig
from sofa_fl.topology.space import DistanceMetric, Floats, Linkage, NodePositions, Space
from sofa_fl.topology.tree import NodeId, Tree

Nested: TypeAlias = "int | frozenset[Nested]"
Drawn: TypeAlias = "int | Sequence[Drawn]"
Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

METRICS: tuple[DistanceMetric, ...] = ("euclidean", "cosine")
WAYS: tuple[tuple[DistanceMetric, Linkage], ...] = (
    ("euclidean", "centroid"),
    ("euclidean", "average"),
    ("cosine", "centroid"),
    ("cosine", "average"),
)
OPERATIONS: tuple[Operation, ...] = ("graft", "merge", "split", "prune")


def examples(num_examples: int) -> settings:
    """Settings of a property."""
    explore = int(os.environ.get("EXPLORE", "0"))
    fewer = int(os.environ.get("FEWER", "1"))  # for mutation testing, where seconds count
    return settings(
        max_examples=explore or max(5, num_examples // fewer),
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def node(number: int) -> NodeId:
    return NodeId(number)


def ids(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def tree_of(drawn: Drawn) -> Tree:
    """A tree as it is drawn: numbers are clients, sequences are clusters.

    Clusters are numbered parents first, from one above the largest client:
    `[[0, 1], [2, 3]]` has root 4 over clusters 5 and 6.
    """
    clients: list[NodeId] = []

    def collect(part: Drawn) -> None:
        if isinstance(part, int):
            clients.append(NodeId(part))
        else:
            for child in part:
                collect(child)

    collect(drawn)
    parent: dict[NodeId, NodeId | None] = {}
    next_id = 1 + max(clients)

    def hang(part: Drawn, up: NodeId | None) -> None:
        nonlocal next_id
        if isinstance(part, int):
            parent[NodeId(part)] = up
            return
        cluster, next_id = NodeId(next_id), next_id + 1
        parent[cluster] = up
        for child in part:
            hang(child, cluster)

    hang(drawn, None)
    return Tree(parent, tuple(sorted(clients)), next_id)


def space_of(
    positions: ArrayLike,
    weights: ArrayLike | None = None,
    metric: DistanceMetric = "euclidean",
    linkage: Linkage = "centroid",
) -> Space:
    """Clients 0, 1, … at `positions`: rows, or numbers on a line."""
    rows = np.asarray(positions, dtype=np.float64)
    rows = rows[:, None] if rows.ndim == 1 else rows
    mass = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    return Space(ids(*range(len(rows))), rows, mass, metric, linkage)


def rows_of(nodes: NodePositions) -> dict[NodeId, int]:
    """The rows of the nodes that have a position."""
    return {each: nodes.row_of[each] for each in nodes.known(nodes.row_of)}


def only(
    *operations: Operation,
    tolerance: float = 0.1,
    merge: float = 0.3,
    split: float = 0.5,
    every: int = 1,
) -> ShapeConfig:
    """These operations, with thresholds that do not move with the package's defaults."""
    return ShapeConfig(
        operations=operations, tolerance=tolerance, merge=merge, split=split, every=every
    )


ALL = only(*OPERATIONS)

# Two clouds that are apart by any metric: clients 0 and 1, and the others.
CLOUDS = [[1, 0.0], [1, 0.1], [0.03, 1], [0.0, 1], [0.1, 1], [-0.1, 1]]


def nested(tree: Tree, rename: Mapping[NodeId, NodeId] | None = None) -> Nested:
    """The tree without the ids of its clusters; the clients renamed, if asked."""
    forms: dict[NodeId, Nested] = {}
    for each in reversed(list(tree.walk())):
        if each in tree.members:
            forms[each] = rename[each] if rename else each
        else:
            forms[each] = frozenset(forms[child] for child in tree.children[each])
    return forms[tree.root]


def client_sets(tree: Tree) -> set[frozenset[int]]:
    """The clients of every cluster."""
    return {frozenset(tree.clients_of(cluster)) for cluster in tree.clusters}


def relabelled(tree: Tree, rename: Mapping[NodeId, NodeId], rng: np.random.Generator) -> Tree:
    """The same tree under new ids, and with its parent map and its clients in another order."""
    first = 1 + max(rename.values())
    numbers = rng.permutation(len(tree.clusters)).tolist()
    full = dict(rename) | {c: NodeId(first + n) for c, n in zip(tree.clusters, numbers)}
    links = [(full[at], None if up is None else full[up]) for at, up in tree.parent.items()]
    parent = {links[i][0]: links[i][1] for i in rng.permutation(len(links))}
    clients = tuple(full[tree.clients[i]] for i in rng.permutation(len(tree.clients)))
    return Tree(parent, clients, first + len(numbers))


def renamed_space(
    space: Space, rename: Mapping[NodeId, NodeId], clients: Sequence[NodeId]
) -> Space:
    """The same positions under new ids, in the order of `clients`."""
    old = {rename[before]: row for row, before in enumerate(space.clients)}
    rows = [old[client] for client in clients]
    return Space(
        tuple(clients), space.positions[rows], space.weights[rows], space.metric, space.linkage
    )


def random_names(clients: Sequence[NodeId], rng: np.random.Generator) -> dict[NodeId, NodeId]:
    """New ids for the clients, neither in order nor without gaps."""
    return dict(zip(clients, map(NodeId, rng.permutation(2 * len(clients)).tolist())))


@st.composite
def trees(draw: Draw, clients: Sequence[NodeId], compact: bool = True) -> Tree:
    """Trees over `clients`; if not compact, with empty and one-child clusters here and there."""
    parts: list[NodeId] = list(draw(st.permutations(clients)))
    parent: dict[NodeId, NodeId | None] = {}
    next_id = 1 + max(clients)
    thin_left = 0 if compact else draw(st.integers(0, 3))
    while len(parts) > 1 or thin_left:
        thin = bool(thin_left) and (len(parts) == 1 or draw(st.booleans()))
        thin_left -= thin
        size = draw(st.integers(0, 1) if thin else st.integers(2, len(parts)))
        start = draw(st.integers(0, len(parts) - size))
        parent |= dict.fromkeys(parts[start : start + size], NodeId(next_id))
        parts[start : start + size] = [NodeId(next_id)]
        next_id += 1
    return Tree({parts[0]: None, **parent}, tuple(clients), next_id)


def generic_places(
    rng: np.random.Generator, n: int, dimensions: int, clustered: bool, finest: float = 1e-3
) -> Floats:
    """Points without ties, in one cloud or in clouds of clouds, the smallest of size `finest`.

    For angles that should not be below 0.1, lest some of them are lost in rounding.
    """
    if not clustered:
        return rng.normal(size=(n, dimensions))
    outer = rng.normal(size=(4, dimensions)) * 10 ** rng.uniform(-1, 2)
    inner = rng.normal(size=(4, 3, dimensions)) * 10 ** rng.uniform(-1, 1)
    group, part = rng.integers(0, rng.integers(1, 5), n), rng.integers(0, rng.integers(1, 4), n)
    noise = rng.normal(size=(n, dimensions)) * 10 ** rng.uniform(np.log10(finest), 0)
    return np.asarray(outer[group] + inner[group, part] + noise)


def like_models(
    rng: np.random.Generator, rotations: int, groups: int, clients: int, dimensions: int = 1000
) -> Floats:
    """Clients in groups of groups, with distances as those of real models: noise is most of it.

    In squares: 68 within a group, 100 within a rotation, 127 between these, as measured after a
    warm-up of 25 batches from one start.
    """
    num = rotations * groups * clients

    def blobs(square: float, count: int) -> Floats:
        drawn = rng.normal(size=(count, dimensions))
        drawn *= (square / 2) ** 0.5 / np.linalg.norm(drawn, axis=1, keepdims=True)
        return np.repeat(drawn, num // count, axis=0)

    return blobs(27, rotations) + blobs(32, rotations * groups) + blobs(68, num)


def tied_places(rng: np.random.Generator, n: int, dimensions: int) -> Floats:
    """Points with as many ties and duplicates as can be, some of them but for rounding."""
    unit = rng.choice([1.0, 0.1, 1e-5])
    positions = rng.integers(0, rng.integers(1, 6), size=(n, dimensions)) * unit
    jitter = rng.choice([0, 0, 1e-16, 1e-14, 1e-9])
    offset = rng.choice([0, 0, 1.0, 1e6])
    return np.asarray((positions + offset) * (1 + jitter * rng.normal(size=positions.shape)))


@st.composite
def configs(draw: Draw, *, all_operations: bool = True) -> ShapeConfig:
    chosen = st.just(OPERATIONS)
    if not all_operations:
        chosen = st.sets(st.sampled_from(OPERATIONS)).map(
            lambda some: tuple(each for each in OPERATIONS if each in some)
        )
    return ShapeConfig(
        operations=draw(chosen),
        tolerance=draw(st.sampled_from([0.1, 0.0, 0.3, 1.0])),
        merge=draw(st.sampled_from([0.3, 0.0, 0.1, 0.7, 1.3])),
        split=draw(st.sampled_from([0.9, 0.2, 0.5, 0.7, 1.2, 1.6])),
        every=draw(st.sampled_from([1, 2, 4])),
    )


@dataclass(frozen=True)
class Case:
    """One call of `shape`, and a generator for what the test draws on top."""

    tree: Tree
    space: Space
    config: ShapeConfig
    rng: np.random.Generator


@st.composite
def cases(draw: Draw, *, ties: bool, hostile: bool = False, max_clients: int = 14) -> Case:
    """Random calls of `shape`; hostile ones leave operations out and give trees not compact.

    Without ties cosine needs a second dimension: on a line there are but two directions.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, max_clients))
    metric, linkage = draw(st.sampled_from(WAYS))
    dimensions = draw(st.integers(1 if ties or metric != "cosine" else 2, 5))
    if ties and draw(st.booleans()):
        positions = tied_places(rng, n, dimensions)
    else:
        finest = 0.1 if metric == "cosine" else 1e-3
        positions = generic_places(rng, n, dimensions, draw(st.booleans()), finest)
    even = draw(st.booleans())
    weights = np.ones(n) if even else np.asarray(rng.integers(1, 60, n), dtype=np.float64)
    clients = ids(*range(n))
    tree = draw(trees(clients, compact=not hostile))
    config = draw(configs(all_operations=not hostile))
    return Case(tree, Space(clients, positions, weights, metric, linkage), config, rng)
