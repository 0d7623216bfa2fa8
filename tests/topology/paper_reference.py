"""The paper's Algorithms 1 to 5, written straight from it: brute force over dicts, and slow.

Numbers are fractions, so nothing is rounded: what is equal is equal, and what is not is not. All
distances are squared, which changes no comparison. Nothing here is shared with the package but the
tree, k-means (whose local optima depend on its seeds) and the settings. Distances are euclidean,
of centroids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, Split
from sofa_fl.topology.paper import partitions
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree

Point = list[Fraction]


def exactly(number: float) -> Fraction:
    """A setting as it is written: 0.1 is a tenth."""
    return Fraction(str(number))


class World:
    """Where clients are, in plain numbers."""

    def __init__(self, space: Space) -> None:
        rows = zip(space.clients, space.positions.tolist(), space.weights.tolist())
        self.at = dict[NodeId, Point]()
        self.weight = dict[NodeId, Fraction]()
        for client, row, weight in rows:
            self.at[client], self.weight[client] = [*map(Fraction, row)], Fraction(weight)
        self.scale = self.spread([*self.at.values()], [*self.weight.values()])

    def mean(self, points: Sequence[Point], weights: Sequence[Fraction]) -> Point:
        total = sum(weights)
        return [
            sum((w * p[k] for p, w in zip(points, weights)), Fraction()) / total
            for k in range(len(points[0]))
        ]

    def square(self, p: Point, q: Point) -> Fraction:
        return sum(((a - b) ** 2 for a, b in zip(p, q)), Fraction())

    def spread(self, points: Sequence[Point], weights: Sequence[Fraction]) -> Fraction:
        n = len(points)
        if n < 2:
            return Fraction()
        centre = self.mean(points, weights)
        squares = sum((w * self.square(p, centre) for p, w in zip(points, weights)), Fraction())
        return squares / sum(weights) * n / (n - 1)

    def position(self, clients: Iterable[NodeId]) -> Point:
        members = list(clients)
        return self.mean([self.at[c] for c in members], [self.weight[c] for c in members])

    def distance(self, a: Iterable[NodeId], b: Iterable[NodeId]) -> Fraction:
        return self.square(self.position(a), self.position(b))

    def incoherence(self, tree: Tree, children: Iterable[NodeId]) -> Fraction:
        members = [tree.clients_of(child) for child in children]
        weights = [sum((self.weight[c] for c in some), Fraction()) for some in members]
        spread = self.spread([self.position(some) for some in members], weights)
        return spread / self.scale if self.scale else Fraction()


def algorithm_1(space: Space, gamma: float) -> Tree:
    """Dynamic multi-branch agglomerative clustering."""
    world, next_id = World(space), 1 + max(space.clients)
    node_list: dict[NodeId, tuple[NodeId, ...]] = {c: (c,) for c in space.clients}
    parent: dict[NodeId, NodeId | None] = dict.fromkeys(space.clients)
    while len(node_list) > 1:
        place = {node: world.position(clients) for node, clients in node_list.items()}
        distance = {
            (i, j): world.square(place[i], place[j]) for i in node_list for j in node_list if i < j
        }
        tau = min(distance.values())
        group: dict[NodeId, set[NodeId]] = {}
        for (u, v), d in distance.items():
            if d <= tau * exactly(gamma) ** 2:
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
    """Grafting; of parents that are as near, the first."""
    world, edits = World(space), set[Edit]()
    place = {node: world.position(tree.clients_of(node)) for node in tree.parent}
    for n_c, n_pre in tree.parent.items():
        if n_pre is None:
            continue
        candidates = [n for n in tree.clusters if level(tree, n) == level(tree, n_pre)]
        d = {n: world.square(place[n], place[n_c]) for n in candidates}
        n_min = min(candidates, key=lambda n: d[n])
        if d[n_min] * (1 + exactly(config.tolerance)) ** 2 < d[n_pre]:
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
    """Consolidation: the pairs that are merged; of those that are as near, the first."""
    world, pairs = World(space), list[set[NodeId]]()
    tau = exactly(config.merge) ** 2 * world.scale
    for p in tree.clusters:
        siblings = [n for n in tree.children[p] if n not in tree.members]
        near = sorted(
            (world.distance(tree.clients_of(a), tree.clients_of(b)), at, to)
            for at, a in enumerate(siblings)
            for to, b in enumerate(siblings)
            if at < to
        )
        for d, at, to in near:
            pair = {siblings[at], siblings[to]}
            if d < tau and not any(pair & other for other in pairs):
                pairs.append(pair)
    return pairs


def algorithm_5(tree: Tree, space: Space, config: ShapeConfig) -> dict[NodeId, set[frozenset[int]]]:
    """Purification: the groups into which nodes are split."""
    world, splits = World(space), dict[NodeId, set[frozenset[int]]]()
    nodes, theta = space.locate(tree), exactly(config.split) ** 2
    for n in tree.clusters:
        successors = tree.children[n]
        if world.incoherence(tree, successors) <= theta:
            continue
        for k in range(2, len(successors) + (n != tree.root)):
            (groups,) = list(partitions(nodes, successors, [k])) or [()]
            if groups and all(world.incoherence(tree, g) <= theta for g in groups):
                splits[n] = {frozenset(g) for g in groups}
                break
    return splits


def merged_pairs(edits: Iterable[Edit]) -> list[set[NodeId]]:
    return [set(edit.nodes) for edit in edits if isinstance(edit, Merge)]


def split_groups(edits: Iterable[Edit]) -> dict[NodeId, set[frozenset[int]]]:
    return {e.node: {frozenset(g) for g in e.groups} for e in edits if isinstance(e, Split)}
