"""Every change to a tree, as a value: `apply_all(tree, edits)` returns a new tree.

SHAPE grafts, prunes, merges and splits; clients join and leave.

An edit contains everything needed to replay it, including the ids of new nodes. So a run's list of
edits is its history: applied to the first tree, they give the last one, and an edit tells which
nodes a new node inherits from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from sofa_fl.errors import TopologyError
from sofa_fl.topology.tree import NodeId, Tree, walk


class MutableTree:
    """A tree that edits change in place."""

    def __init__(self, tree: Tree) -> None:
        self.parent = dict(tree.parent)
        children = {node: dict.fromkeys(below) for node, below in tree.children.items()}
        self.children: dict[NodeId, dict[NodeId, None]] = defaultdict(dict, children)
        self.next_id = tree.next_id
        self.members = dict.fromkeys(tree.clients)  # in order

    def walk(self, start: NodeId) -> Iterator[NodeId]:
        """Nodes of the subtree at `start`, parents first."""
        return walk(self.children, start)

    def reparent(
        self,
        moves: Mapping[NodeId, NodeId | None],
        drop: Sequence[NodeId] = (),
        join: Sequence[NodeId] = (),
    ) -> None:
        """Move nodes below others, then drop some; those in `join` become the last clients."""
        for node, up in moves.items():
            self._cut(node)
            self.parent[node] = up
            if up is not None:
                self.children[up][node] = None
        for node in drop:
            self._cut(node)
            del self.parent[node]
            self.children.pop(node, None)
            self.members.pop(node, None)
        self.members |= dict.fromkeys(join)
        self.next_id = max(self.next_id, 1 + max(moves, default=NodeId(-1)))

    def _cut(self, node: NodeId) -> None:
        above = self.parent.get(node)
        if above is not None:
            self.children[above].pop(node)

    def done(self) -> Tree:
        """The tree, checked."""
        return Tree(self.parent, tuple(self.members), self.next_id)


AnyTree = Tree | MutableTree


@dataclass(frozen=True, slots=True)
class Graft:
    """Move `node`, with its subtree, under `onto`."""

    node: NodeId
    onto: NodeId

    def apply(self, tree: MutableTree) -> None:
        _check_known(tree, self.node, self.onto)
        if self.onto in tree.walk(self.node):
            raise TopologyError(f"cannot graft {self.node} onto its own descendant {self.onto}")
        tree.reparent({self.node: self.onto})


@dataclass(frozen=True, slots=True)
class Prune:
    """Remove a cluster; its children take its place. The root must have at most one."""

    node: NodeId

    def apply(self, tree: MutableTree) -> None:
        _check_known(tree, self.node)
        if self.node in tree.members:
            raise TopologyError(f"cannot prune {self.node}: it is a client")
        children = tree.children[self.node]
        if tree.parent[self.node] is None and len(children) > 1:
            raise TopologyError(f"cannot prune {self.node}: a root of {len(children)} children")
        tree.reparent(dict.fromkeys(children, tree.parent[self.node]), drop=[self.node])


@dataclass(frozen=True, slots=True)
class Merge:
    """Replace sibling clusters by one cluster, `into`, that has all their children."""

    nodes: tuple[NodeId, ...]
    into: NodeId

    def apply(self, tree: MutableTree) -> None:
        _check_known(tree, *self.nodes)
        parents = {tree.parent[node] for node in self.nodes}
        if not 2 <= len(set(self.nodes)) == len(self.nodes) or len(parents) != 1:
            raise TopologyError(f"cannot merge {self.nodes}: they are not siblings")
        if clients := [node for node in self.nodes if node in tree.members]:
            raise TopologyError(f"cannot merge {clients}: clients are never merged")
        _check_new(tree, self.into)
        moved = {child: self.into for node in self.nodes for child in tree.children[node]}
        tree.reparent({self.into: parents.pop(), **moved}, drop=self.nodes)


@dataclass(frozen=True, slots=True)
class Split:
    """Divide a cluster; `groups[i]` become the children of the new cluster `into[i]`.

    If the groups contain all children, the parts take the cluster's place below its parent. The
    root, which has no parent, stays above its parts. So does a cluster with a child in no group.
    """

    node: NodeId
    into: tuple[NodeId, ...]
    groups: tuple[tuple[NodeId, ...], ...]

    def apply(self, tree: MutableTree) -> None:
        _check_known(tree, self.node)
        children = list(tree.children[self.node])
        grouped = [n for group in self.groups for n in group]
        is_divided = all(self.groups) and len(set(grouped)) == len(grouped)
        if not is_divided or not set(grouped) <= set(children):
            raise TopologyError(f"groups {self.groups} of {self.node} do not divide {children}")
        is_whole = len(grouped) == len(children)
        if not 1 + is_whole <= len(set(self.into)) == len(self.into) == len(self.groups):
            raise TopologyError(
                f"split of {self.node} needs an id for each part, and two parts if no child stays, "
                f"got ids {self.into} for {self.groups}"
            )
        _check_new(tree, *self.into)
        up = tree.parent[self.node]
        stays = up is None or not is_whole
        parts = dict.fromkeys(self.into, self.node if stays else up)
        moved = {c: part for part, group in zip(self.into, self.groups) for c in group}
        tree.reparent({**parts, **moved}, drop=[] if stays else [self.node])


@dataclass(frozen=True, slots=True)
class Join:
    """Add a client under the cluster `onto`, or beside it if `onto` is the only client.

    In that case `above` is the new root, over both.
    """

    node: NodeId
    onto: NodeId
    above: NodeId | None = None

    def apply(self, tree: MutableTree) -> None:
        _check_known(tree, self.onto)
        if self.node in tree.parent:
            raise TopologyError(f"{self.node} cannot join: it is in the tree already")
        moves: dict[NodeId, NodeId | None] = {self.node: self.onto}
        if self.onto in tree.members:
            if tree.parent[self.onto] is not None or self.above is None:
                raise TopologyError(f"{self.node} cannot join under {self.onto}: it is a client")
            _check_new(tree, self.above)
            moves = {self.above: None, self.onto: self.above, self.node: self.above}
        tree.reparent(moves, join=[self.node])


@dataclass(frozen=True, slots=True)
class Leave:
    """Remove a client for good."""

    node: NodeId

    def apply(self, tree: MutableTree) -> None:
        _check_known(tree, self.node)
        if self.node not in tree.members:
            raise TopologyError(f"{self.node} cannot leave: it is a cluster")
        if len(tree.members) == 1:
            raise TopologyError(f"{self.node} cannot leave: a tree needs a client")
        tree.reparent({}, drop=[self.node])


Edit = Graft | Prune | Merge | Split | Join | Leave


def _check_known(tree: MutableTree, *ids: NodeId) -> None:
    if unknown := [node for node in ids if node not in tree.parent]:
        raise TopologyError(f"nodes {unknown} are not in the tree")


def _check_new(tree: MutableTree, *ids: NodeId) -> None:
    if old := [node for node in ids if node < tree.next_id]:
        raise TopologyError(f"ids {old} are not new: the next free id is {tree.next_id}")


def merges_of(tree: Tree, pairs: Iterable[tuple[NodeId, NodeId]]) -> list[Edit]:
    """Merge pairs of clusters into new ones, in this order, and each cluster at most once."""
    merged: set[NodeId] = set()
    edits: list[Edit] = []
    for pair in pairs:
        if merged.isdisjoint(pair):
            merged |= set(pair)
            edits.append(Merge(pair, NodeId(tree.next_id + len(edits))))
    return edits


def splits_of(tree: Tree, parts: Mapping[NodeId, Sequence[tuple[NodeId, ...]]]) -> list[Edit]:
    """Split clusters: each of these parts of their children becomes a new cluster."""
    ids = map(NodeId, count(tree.next_id))
    return [
        Split(cluster, tuple(next(ids) for _ in groups), tuple(groups))
        for cluster, groups in parts.items()
    ]


def apply_all(tree: Tree, edits: Sequence[Edit]) -> Tree:
    """The tree after all edits, in order; checked once."""
    if not edits:
        return tree
    draft = MutableTree(tree)
    for edit in edits:
        edit.apply(draft)
    return draft.done()
