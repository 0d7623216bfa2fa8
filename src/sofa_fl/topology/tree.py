"""The hierarchy: an immutable rooted tree whose leaves are the clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Reversible, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NewType

import numpy as np
from numpy.typing import NDArray

from sofa_fl.errors import TopologyError

NodeId = NewType("NodeId", int)
Rows = NDArray[np.intp]  # row numbers of an array


@dataclass(frozen=True)
class Tree:
    """A rooted tree, stored as a parent map and nothing else.

    The constructor checks that there is exactly one root, no cycle and at least one client, and
    that no client has children. A tree is *compact* if every cluster also has at least two
    children; DMAC and SHAPE return compact trees. A single client is its own root.

    Attributes:
        parent: Parent of every node; the root maps to None.
        clients: The leaves; a cluster without children is not one of them.
        next_id: Smallest id never used; ids are not reused.
    """

    parent: Mapping[NodeId, NodeId | None]
    clients: tuple[NodeId, ...]
    next_id: int

    def __post_init__(self) -> None:
        roots = [node for node, up in self.parent.items() if up is None]
        if len(roots) != 1:
            raise TopologyError(f"a tree has exactly one root, got {roots}")
        if unknown := {up for up in self.parent.values() if up is not None} - self.parent.keys():
            raise TopologyError(f"parents {sorted(unknown)} are not in the tree")
        if not self.clients or len(self.members) < len(self.clients):
            raise TopologyError(f"a tree needs a client, and each once, got {self.clients}")
        if missing := self.members - self.parent.keys():
            raise TopologyError(f"clients {sorted(missing)} are not in the tree")
        if stranded := self.parent.keys() - set(self.walk()):
            raise TopologyError(f"nodes {sorted(stranded)} do not hang from root {roots[0]}")
        if parents := [client for client in self.clients if self.children[client]]:
            raise TopologyError(f"clients {parents} have children; only clusters may")
        if self.next_id <= max(self.parent):
            raise TopologyError(f"next_id {self.next_id} must be above id {max(self.parent)}")

    @cached_property
    def root(self) -> NodeId:
        return next(node for node, up in self.parent.items() if up is None)

    @cached_property
    def children(self) -> Mapping[NodeId, tuple[NodeId, ...]]:
        below: dict[NodeId, list[NodeId]] = {node: [] for node in self.parent}
        for node, up in self.parent.items():
            if up is not None:
                below[up].append(node)
        return {node: tuple(nodes) for node, nodes in below.items()}

    @cached_property
    def members(self) -> frozenset[NodeId]:
        """The clients, as a set."""
        return frozenset(self.clients)

    @cached_property
    def clusters(self) -> tuple[NodeId, ...]:
        """Inner nodes, parents before children."""
        return tuple(node for node in self.walk() if node not in self.members)

    @property
    def is_compact(self) -> bool:
        return all(len(self.children[cluster]) >= 2 for cluster in self.clusters)

    @cached_property
    def nodes(self) -> tuple[NodeId, ...]:
        """All nodes, parents first."""
        return tuple(walk(self.children, self.root))

    def walk(self, start: NodeId | None = None) -> Iterator[NodeId]:
        """Nodes of the subtree at `start` (default: the root), parents first."""
        if start is None or start == self.root:
            return iter(self.nodes)
        return walk(self.children, start)

    def path(self, node: NodeId) -> tuple[NodeId, ...]:
        """Root … parent, `node`: coarse to fine."""
        path, up = [node], self.parent[node]
        while up is not None:
            path.append(up)
            up = self.parent[up]
        return tuple(reversed(path))

    def siblings(self, node: NodeId) -> tuple[NodeId, ...]:
        up = self.parent[node]
        return () if up is None else tuple(n for n in self.children[up] if n != node)

    def clients_of(self, node: NodeId) -> tuple[NodeId, ...]:
        if node not in self._clients_of:
            self._clients_of[node] = tuple(n for n in self.walk(node) if n in self.members)
        return self._clients_of[node]

    @cached_property
    def _clients_of(self) -> dict[NodeId, tuple[NodeId, ...]]:
        """What `clients_of` has said: a round asks several times about the same clusters."""
        return {}

    @cached_property
    def level(self) -> Mapping[NodeId, int]:
        """Longest distance down to a leaf: clients are at 0, the root is highest."""
        level = dict.fromkeys(self.walk(), 0)
        for cluster in reversed(self.clusters):
            level[cluster] = max((1 + level[child] for child in self.children[cluster]), default=0)
        return level

    @property
    def depth(self) -> int:
        """Level of the root: 0 for one client alone, 1 for a flat tree."""
        return self.level[self.root]

    def reparent(self, moves: Mapping[NodeId, NodeId | None]) -> Tree:
        """The tree with some nodes moved below others; nodes that are new become clusters."""
        parent = {**self.parent, **moves}
        return Tree(parent, self.clients, max(self.next_id, 1 + max(parent)))


def walk(children: Mapping[NodeId, Reversible[NodeId]], start: NodeId) -> Iterator[NodeId]:
    """Nodes of the subtree at `start`, parents first."""
    stack = [start]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children[node]))


def value_at_level(values: float | Sequence[float], level: int) -> float:
    """The value for clusters at a level, from 1 up: the last one holds for all above, () is 0."""
    if isinstance(values, Sequence):
        return values[max(0, min(level, len(values)) - 1)] if values else 0.0
    return values


def flat_tree(clients: Sequence[NodeId], first: int = 0) -> Tree:
    """One cluster over all clients: the tree of FedAvg; its root's id is at least `first`."""
    if not clients:
        raise TopologyError("a tree needs at least one client, got none")
    if len(clients) == 1:
        return Tree({clients[0]: None}, tuple(clients), max(first, clients[0] + 1))
    root = NodeId(max(first, 1 + max(clients)))
    parent: dict[NodeId, NodeId | None] = {root: None}
    return Tree(parent | dict.fromkeys(clients, root), tuple(clients), root + 1)
