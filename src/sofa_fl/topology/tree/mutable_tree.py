"""A tree under change: the same words as `Tree`, changed in place and checked once, at the end.

A tree is checked whenever it is made, which takes a look at every node; a hundred edits of ten
thousand clients are better checked together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol, Self

from sofa_fl.topology.tree import NodeId, Tree


class TreeLike(Protocol):
    """What an edit needs of a tree, or of a draft of one."""

    @property
    def parent(self) -> Mapping[NodeId, NodeId | None]: ...
    @property
    def children(self) -> Mapping[NodeId, Collection[NodeId]]: ...
    @property
    def members(self) -> frozenset[NodeId]: ...
    @property
    def next_id(self) -> int: ...
    def walk(self, start: NodeId | None = None) -> Iterator[NodeId]: ...
    def reparent(
        self,
        moves: Mapping[NodeId, NodeId | None],
        drop: Sequence[NodeId] = (),
        join: Sequence[NodeId] = (),
    ) -> Self: ...


class _Children(dict[NodeId, dict[NodeId, None]]):
    """The children of every node, copied when first asked for: few nodes are ever touched."""

    def __init__(self, before: Mapping[NodeId, tuple[NodeId, ...]]) -> None:
        super().__init__()
        self._before = before

    def __missing__(self, node: NodeId) -> dict[NodeId, None]:
        below = self[node] = dict.fromkeys(self._before.get(node, ()))
        return below


class MutableTree:
    """A tree that edits change in place."""

    def __init__(self, tree: Tree) -> None:
        self.parent = dict(tree.parent)
        self.children = _Children(tree.children)
        self.members = tree.members
        self.next_id = tree.next_id
        self._clients = dict.fromkeys(tree.clients)

    def walk(self, start: NodeId | None = None) -> Iterator[NodeId]:
        """Nodes of the subtree at `start` (default: the root), parents first."""
        stack = [n for n, up in self.parent.items() if up is None] if start is None else [start]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(self.children[node]))

    def reparent(
        self,
        moves: Mapping[NodeId, NodeId | None],
        drop: Sequence[NodeId] = (),
        join: Sequence[NodeId] = (),
    ) -> MutableTree:
        """As `Tree.reparent`, in place."""
        if join or any(node in self._clients for node in drop):
            self._clients |= dict.fromkeys(join)
            for node in drop:
                self._clients.pop(node, None)
            self.members = frozenset(self._clients)
        for node, up in moves.items():
            before = self.parent.get(node)
            if before is not None:
                self.children[before].pop(node)
            self.parent[node] = up
            if up is not None:
                self.children[up][node] = None
        for node in drop:
            before = self.parent.pop(node)
            if before is not None:
                self.children[before].pop(node)
            self.children.pop(node, None)
        self.next_id = max(self.next_id, 1 + max(moves, default=NodeId(-1)))
        return self

    def done(self) -> Tree:
        """The tree, checked."""
        return Tree(self.parent, tuple(self._clients), self.next_id)
