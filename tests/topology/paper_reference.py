"""The paper's Algorithms 1 to 5, written straight from it: brute force over dicts, and slow.

A node is a dict with its clients; nothing here is shared with the package but the tree, k-means
(whose local optima depend on its seeds) and the settings. Distances are euclidean, of centroids.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.clustering.paper_edits import partitions
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, Split

Point = list[float]


class World:
    """Where clients are, in plain numbers."""

    def __init__(self, space: Space) -> None:
        self.at = dict(zip(space.clients, space.positions.tolist()))
        self.weight = dict(zip(space.clients, space.weights.tolist()))
        self.scale = self.spread([self.at[c] for c in self.at], list(self.weight.values()))

    def mean(self, points: Sequence[Point], weights: Sequence[float]) -> Point:
        total = sum(weights)
        return [
            sum(w * p[k] for p, w in zip(points, weights)) / total for k in range(len(points[0]))
        ]

    def spread(self, points: Sequence[Point], weights: Sequence[float]) -> float:
        n = len(points)
        if n < 2:
            return 0.0
        centre = self.mean(points, weights)
        squares = sum(w * math.dist(p, centre) ** 2 for p, w in zip(points, weights))
        return math.sqrt(squares / sum(weights) * n / (n - 1))

    def position(self, clients: Iterable[NodeId]) -> Point:
        members = list(clients)
        return self.mean([self.at[c] for c in members], [self.weight[c] for c in members])

    def distance(self, a: Iterable[NodeId], b: Iterable[NodeId]) -> float:
        return math.dist(self.position(a), self.position(b))

    def incoherence(self, tree: Tree, children: Iterable[NodeId]) -> float:
        members = [tree.clients_of(child) for child in children]
        weights = [sum(self.weight[c] for c in some) for some in members]
        return self.spread([self.position(some) for some in members], weights) / self.scale


def algorithm_1(space: Space, gamma: float) -> Tree:
    """Dynamic multi-branch agglomerative clustering."""
    world, next_id = World(space), 1 + max(space.clients)
    node_list: dict[NodeId, tuple[NodeId, ...]] = {c: (c,) for c in space.clients}
    parent: dict[NodeId, NodeId | None] = dict.fromkeys(space.clients)
    while len(node_list) > 1:
        distance = {
            (i, j): world.distance(node_list[i], node_list[j])
            for i in node_list
            for j in node_list
            if i < j
        }
        tau = min(distance.values())
        group: dict[NodeId, set[NodeId]] = {}
        for (u, v), d in distance.items():
            if d <= tau * gamma:
                both = group.get(u, {u}) | group.get(v, {v})
                group |= dict.fromkeys(both, both)
        for members in sorted({frozenset(some) for some in group.values()}, key=min):
            cluster, next_id = NodeId(next_id), next_id + 1
            parent |= dict.fromkeys(members, cluster)
            parent[cluster] = None
            node_list[cluster] = tuple(c for n in sorted(members) for c in node_list.pop(n))
    return Tree(parent, space.clients, next_id)


def level(tree: Tree, node: NodeId) -> int:
    return 1 + max((level(tree, child) for child in tree.children[node]), default=-1)


def algorithm_2(tree: Tree, space: Space, config: ShapeConfig) -> set[Edit]:
    """Grafting."""
    world, edits = World(space), set[Edit]()
    for n_c, n_pre in tree.parent.items():
        if n_pre is None:
            continue
        candidates = [n for n in tree.clusters if level(tree, n) == level(tree, n_pre)]
        d = {n: world.distance(tree.clients_of(n), tree.clients_of(n_c)) for n in candidates}
        n_min = min(candidates, key=lambda n: d[n])
        if d[n_min] * (1 + config.tolerance) < d[n_pre]:
            edits.add(Graft(n_c, n_min))
    return edits


def algorithm_3(tree: Tree) -> set[Edit]:
    """Pruning, until every cluster has two children."""
    children = {node: set(below) for node, below in tree.children.items()}
    parent, edits = dict(tree.parent), set[Edit]()
    while thin := [p for p in children if p not in tree.members and len(children[p]) < 2]:
        p = thin[0]
        g = parent.pop(p)
        for c in children.pop(p):
            parent[c] = g
            if g is not None:
                children[g].add(c)
        if g is not None:
            children[g].discard(p)
        edits.add(Prune(p))
    return edits


def algorithm_4(tree: Tree, space: Space, config: ShapeConfig) -> list[set[NodeId]]:
    """Consolidation: the pairs that are merged."""
    world, pairs = World(space), list[set[NodeId]]()
    tau = config.merge * world.scale
    for p in tree.clusters:
        siblings = [n for n in tree.children[p] if n not in tree.members]
        near = sorted(
            (world.distance(tree.clients_of(a), tree.clients_of(b)), a, b)
            for at, a in enumerate(siblings)
            for b in siblings[at + 1 :]
        )
        for d, a, b in near:
            if d < tau and not any({a, b} & pair for pair in pairs):
                pairs.append({a, b})
    return pairs


def algorithm_5(tree: Tree, space: Space, config: ShapeConfig) -> dict[NodeId, set[frozenset[int]]]:
    """Purification: the groups into which nodes are split."""
    world, splits = World(space), dict[NodeId, set[frozenset[int]]]()
    nodes = space.locate(tree)
    for n in tree.clusters:
        successors = tree.children[n]
        if world.incoherence(tree, successors) <= config.split:
            continue
        for k in range(2, len(successors) + (n != tree.root)):
            (groups,) = list(partitions(nodes, successors, [k])) or [()]
            if groups and all(world.incoherence(tree, g) <= config.split for g in groups):
                splits[n] = {frozenset(g) for g in groups}
                break
    return splits


def merged_pairs(edits: Iterable[Edit]) -> list[set[NodeId]]:
    return [set(edit.nodes) for edit in edits if isinstance(edit, Merge)]


def split_groups(edits: Iterable[Edit]) -> dict[NodeId, set[frozenset[int]]]:
    return {e.node: {frozenset(g) for g in e.groups} for e in edits if isinstance(e, Split)}
