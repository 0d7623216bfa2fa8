"""SHAPE, self-organizing hierarchical adaptive propagation and evolution: keep the tree up to date.

Positions propose, losses decide. A proposal is an edit, and what its clients should find if it is
right: that they lose less by one model than by another. All proposals of a round are asked about
together, on samples that the models were made without, and one test (`is_less`) decides on all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from scipy.special import stdtrit

from sofa_fl.topology.config import DmacConfig, Operation, ShapeConfig
from sofa_fl.topology.dmac import dmac, one_thread
from sofa_fl.topology.edits import (
    Edit,
    Graft,
    Join,
    Leave,
    Prune,
    apply_all,
    merges_of,
    splits_of,
)
from sofa_fl.topology.space import Floats, NodePositions, Space
from sofa_fl.topology.tree import NodeId, Tree

Blend = tuple[tuple[NodeId, float], ...]  # nodes and weights: a mean of the models below them

CONSTANT: Blend = ()  # a constant prediction in place of a model
SPREAD = 0.15  # by how much the losses of one sample differ between models, of a constant's
CLIENTS = 4  # as which that counts beside the spread over clients


@dataclass(frozen=True, slots=True)
class Claim:
    """A client loses less by one model than by another.

    Attributes:
        unseen: Whether both are made without the client; then its training samples count, too.
    """

    client: NodeId
    new: Blend
    old: Blend
    unseen: bool = True


@dataclass(frozen=True, slots=True)
class Proposal:
    """An edit, and what must hold for it.

    Attributes:
        operation: Its kind.
        node: The node that moves; the first of the clusters that merge; the cluster that is split.
        others: The new parent; the other cluster; the children that become one cluster.
        gains: Clients that must lose clearly less, on average.
        keeps: Groups of clients that must not lose more, on average.
    """

    operation: Operation
    node: NodeId
    others: tuple[NodeId, ...]
    gains: tuple[Claim, ...] = ()
    keeps: tuple[tuple[Claim, ...], ...] = ()

    @property
    def claims(self) -> Iterator[Claim]:
        yield from self.gains
        for group in self.keeps:
            yield from group


@dataclass(frozen=True)
class Proposer:
    """The edits that positions suggest.

    Attributes:
        space: The clients that contributed to this round.
        due: Whether it is a node's turn to compare other places.
        selfish: The nodes that take nothing from their parents.
        unsuited: The clients that lost more by their parent's model than by a constant prediction
            when they were last asked.
        arrived: The nodes that have come to their parents from elsewhere lately. Their models have
            not learned together with the others' yet, so it is too early to divide these; but who
            came together may be a cluster at once.
    """

    tree: Tree
    space: Space
    shape: ShapeConfig
    dmac: DmacConfig = field(default_factory=DmacConfig)
    due: Callable[[NodeId], bool] = lambda _: True
    selfish: Collection[NodeId] = ()
    unsuited: Collection[NodeId] = ()
    arrived: Collection[NodeId] = ()

    def __post_init__(self) -> None:
        nodes, below = self.space.locate(self.tree), dict[NodeId, list[NodeId]]()
        for client in self.tree.clients_of(self.tree.root):
            if client in self.space.row_of:
                for node in self.tree.path(client):
                    below.setdefault(node, []).append(client)
        self.__dict__.update(nodes=nodes, below=below)

    nodes: NodePositions = field(init=False, repr=False)
    below: Mapping[NodeId, list[NodeId]] = field(init=False, repr=False)

    def weight(self, node: NodeId) -> float:
        return float(self.nodes.weights[self.nodes.row_of[node]])

    def without(self, node: NodeId, part: NodeId) -> Blend | None:
        """What others made of a node's model, if there are any."""
        if part not in self.below or node not in self.tree.path(part):
            return ((node, 1.0),)
        if len(self.below[part]) == len(self.below[node]):
            return None
        return ((node, self.weight(node)), (part, -self.weight(part)))

    def mean(self, nodes: Iterable[NodeId], but: NodeId) -> Blend:
        """The mean of what clients below some nodes have, without one that is among them."""
        return (*((node, self.weight(node)) for node in nodes), (but, -self.weight(but)))

    def grafts(self) -> Iterator[Proposal]:
        """Algorithm 2: another parent for a node: one of the nearest, or one above its own.

        A client may move to any cluster, a cluster to one on the level of its parent. A node that
        takes nothing from the root joins only what it would take from. A client for which its
        parent's model is worse than a constant prediction goes to the root.
        """
        tree, clusters = self.tree, self.nodes.known(self.tree.clusters)
        movable = [n for n in self.below if n != tree.root and self.due(n)]
        if len(tree.clusters) < 2 or not movable:
            return
        order = np.argsort(self.nodes.distances(movable, clusters), axis=1, kind="stable")
        for node, nearest in zip(movable, order.tolist()):
            *above, parent, _ = tree.path(node)
            if (old := self.without(parent, node)) is None:
                continue
            for onto in above:
                new = self.without(onto, node)
                if new is not None:
                    claims = tuple(Claim(client, new, old) for client in self.below[node])
                    yield Proposal("graft", node, (onto,), claims)
            if node in self.unsuited and node in tree.members and above:
                worse = Claim(node, CONSTANT, old)
                yield Proposal("graft", node, (tree.root,), (worse,))
            beside = (clusters[k] for k in nearest if self._may_take(clusters[k], node, parent))
            for onto in islice(beside, self.shape.nearest):
                move = node, ((onto, 1.0),), old
                yield Proposal("graft", node, (onto,), *self._gains([move], parent))

    def _may_take(self, onto: NodeId, node: NodeId, parent: NodeId) -> bool:
        """Whether a cluster that is not on a node's path may become its parent."""
        if onto in self.tree.path(node) or node in self.tree.path(onto):
            return False
        return node in self.tree.members or self.tree.level[onto] == self.tree.level[parent]

    def others(self) -> dict[NodeId, Blend]:
        """By client, what others made of its parent's model."""
        parents = {c: up for c in self.space.clients if (up := self.tree.parent[c]) is not None}
        blends = {c: self.without(parent, c) for c, parent in parents.items()}
        return {client: blend for client, blend in blends.items() if blend is not None}

    def merges(self) -> Iterator[Proposal]:
        """Algorithm 4: one cluster in place of two siblings, where nobody loses by it."""
        times = Counter[NodeId]()
        for a, b, _ in self.space.sibling_pairs(self.tree):  # the nearest first
            if min(times[a], times[b]) >= self.shape.nearest:
                continue
            times.update((a, b))
            if not self.due(NodeId(a + b)):
                continue
            sides = []
            for side in (a, b):
                olds = [(c, self.without(side, c)) for c in self.below[side]]
                sides.append(
                    tuple(Claim(c, self.mean((a, b), c), old) for c, old in olds if old is not None)
                )
            if all(sides):
                yield Proposal("merge", a, (b,), keeps=tuple(sides))

    def splits(self) -> Iterator[Proposal]:
        """Algorithm 5: a cluster for some children of a cluster, where these gain by it.

        DMAC says which, outer ones first: clients, or clusters that gain from each other. So are
        the clients beside them, and those whom the cluster's model suits, if it does not suit all.
        """
        for cluster in self.nodes.known(self.tree.clusters):
            children = [c for c in self.tree.children[cluster] if c in self.below]
            lone = [child for child in children if child in self.tree.members]
            if len(children) < 3:
                continue
            new = {child for child in children if child in self.arrived}
            for part in self._parts(cluster, children, lone):
                if not new or new.issuperset(part):
                    yield self._split(cluster, part)

    def _parts(
        self, cluster: NodeId, children: Sequence[NodeId], lone: Sequence[NodeId]
    ) -> Iterable[tuple[NodeId, ...]]:
        """The children that might become one cluster, each set of them once."""
        config = replace(self.dmac, certain=False)  # losses will say whether it is chance
        tree = dmac(self.space.of(self.below[cluster]), config, self.tree.next_id)
        found = list[tuple[NodeId, ...]]()
        for group in tree.clusters[1:]:  # parents before children
            inside = set(tree.clients_of(group))
            part = [c for c in children if inside.issuperset(self.below[c])]
            is_union = len(inside) == sum(len(self.below[child]) for child in part)
            if is_union and (set(lone).issuperset(part) or set(lone).isdisjoint(part)):
                found.append(tuple(part))
                if set(lone).issuperset(part):
                    found.append(tuple(c for c in lone if c not in part))
        found.append(tuple(c for c in lone if c not in self.unsuited))
        return dict.fromkeys(part for part in found if 1 < len(part) < len(children))

    def _split(self, cluster: NodeId, part: tuple[NodeId, ...]) -> Proposal:
        others = [self.without(cluster, child) or ((cluster, 1.0),) for child in part]
        moves = [(child, self.mean(part, child), old) for child, old in zip(part, others)]
        return Proposal("split", cluster, part, *self._gains(moves, self.tree.root))

    def _gains(
        self, moves: Sequence[tuple[NodeId, Blend, Blend]], parent: NodeId
    ) -> tuple[tuple[Claim, ...], tuple[tuple[Claim, ...], ...]]:
        """What must hold if nodes get new parents, given what others make of the new and the old.

        Clients must gain; those of a cluster by what it could take from either, half and half, or
        from the new one alone, if it takes nothing from the old. And a client that takes nothing
        from the root must not lose by taking from another.
        """
        gains, keeps = list[Claim](), list[Claim]()
        for node, new, old in moves:
            own, below = ((node, 1.0),), self.below[node]
            half, is_selfish = _half(new, own), node in self.selfish
            if node in self.tree.members:
                gains.append(Claim(node, new, old))
                if is_selfish and parent == self.tree.root:
                    keeps.append(Claim(node, half, own, unseen=False))
            else:
                before = own if is_selfish else _half(old, own)
                gains += [Claim(client, half, before, unseen=False) for client in below]
        return tuple(gains), (tuple(keeps),) if keeps else ()

    @one_thread()
    def all(self) -> list[Proposal]:
        """The proposals of all operations that may be made."""
        rules = {"graft": self.grafts, "merge": self.merges, "split": self.splits}
        found = [rules[name]() for name in rules if name in self.shape.operations]
        return [proposal for each in found for proposal in each]


def _half(a: Blend, b: Blend) -> Blend:
    """The mean of two blends."""
    shares = [(node, w / sum(v for _, v in blend)) for blend in (a, b) for node, w in blend]
    return tuple(shares)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client loses by the two models of a claim, and on how many samples."""

    new: float
    old: float
    samples: int


def decide(
    tree: Tree,
    proposals: Sequence[Proposal],
    answers: Mapping[Claim, Answer],
    unit: float,
    config: ShapeConfig,
) -> list[Proposal]:
    """The proposals that hold, those that gain most first; no node moves twice.

    `unit` is the loss of a constant prediction. Claims without an answer do not count.
    """
    found = list[tuple[float, int, Proposal]]()
    for at, proposal in enumerate(proposals):
        gains, *keeps = (
            [answers[claim] for claim in group if claim in answers]
            for group in (proposal.gains, *proposal.keeps)
        )
        if not (gains or keeps) or not all(keeps) or bool(gains) != bool(proposal.gains):
            continue
        least = min((mean_gain(each) for each in keeps), default=math.inf)
        if least >= -config.least / 2 * unit and (not gains or is_less(gains, unit, config)):
            found.append((mean_gain(gains) if gains else least, at, proposal))
    best = sorted(found, key=lambda each: (-each[0], each[1]))
    return _without_conflicts([proposal for _, _, proposal in best], tree)


def mean_gain(answers: Sequence[Answer]) -> float:
    """By how much clients lose less, on average over their samples."""
    counts = [answer.samples for answer in answers]
    return float(np.average([a.old - a.new for a in answers], weights=counts))


def is_less(answers: Sequence[Answer], unit: float, config: ShapeConfig) -> bool:
    """Whether clients lose clearly less, on average: by `least`, and by more than chance."""
    gains = np.array([answer.old - answer.new for answer in answers])
    counts = np.array([answer.samples for answer in answers], dtype=np.float64)
    mean = float(np.average(gains, weights=counts))
    return mean > max(config.least * unit, by_chance(gains, counts, unit, config.chance))


def by_chance(gains: Floats, counts: Floats, unit: float, chance: float) -> float:
    """What the mean of clients' gains exceeds by chance, by Student's t.

    The error is known from the spread over clients. Of few clients that says little, so it counts
    beside what the losses of single samples spread.
    """
    shares = counts / counts.sum()
    mean = float(shares @ gains)
    scatter = float((shares * (gains - mean) ** 2).sum()) * len(gains)
    usual = (SPREAD * unit) ** 2 / counts.sum()
    degrees = len(gains) - 1 + CLIENTS
    variance = (scatter * float((shares**2).sum()) + CLIENTS * usual) / degrees
    return float(stdtrit(degrees, 1 - chance)) * math.sqrt(variance)


def _without_conflicts(proposals: Sequence[Proposal], tree: Tree) -> list[Proposal]:
    """Proposals that can be made together: no node moves twice, or to a cluster that goes."""
    moved, gone, needed, divided = (set[NodeId]() for _ in range(4))
    chosen = list[Proposal]()
    for proposal in proposals:
        node, others = proposal.node, set(proposal.others)
        moves, goes, needs = {node}, set[NodeId](), others  # of a graft
        if proposal.operation == "merge":
            moves = goes = {node, *others}
            needs = set()
        elif proposal.operation == "split":
            moves, needs = others, set()
            goes = set() if tree.parent[node] is None else {node} - divided
        if not (moved & moves or gone & (moves | needs | goes) or goes & (moved | needed)):
            chosen.append(proposal)
            moved, gone, needed = moved | moves, gone | goes, needed | needs
            divided |= {node} if proposal.operation == "split" else set()
    return chosen


def edits_of(tree: Tree, proposals: Sequence[Proposal], operation: Operation) -> list[Edit]:
    """The edits of one operation, for the tree as it is by then.

    If some children of a cluster become one, so do the others, unless the cluster is the root:
    nothing stays between.
    """
    chosen = [p for p in proposals if p.operation == operation and _is_possible(p, tree)]
    if operation == "graft":
        return [Graft(p.node, onto) for p in chosen for onto in p.others]
    if operation == "merge":
        return merges_of(tree, [(p.node, other) for p in chosen for other in p.others])
    parts: dict[NodeId, list[tuple[NodeId, ...]]] = {}
    for proposal in chosen:
        parts.setdefault(proposal.node, []).append(proposal.others)
    for cluster, groups in parts.items():
        taken = {child for group in groups for child in group}
        rest = tuple(child for child in tree.children[cluster] if child not in taken)
        if rest and tree.parent[cluster] is not None:
            groups.append(rest)
        if not rest and len(groups) == 1:
            groups.clear()
    # Parents first: a cluster that is split must still be there when its parent's rest moves.
    return splits_of(
        tree, {cluster: parts[cluster] for cluster in tree.clusters if parts.get(cluster)}
    )


def _is_possible(proposal: Proposal, tree: Tree) -> bool:
    """Whether rules of another kind have left everything in place that an edit is about."""
    node, others = proposal.node, proposal.others
    if node not in tree.parent or not all(other in tree.parent for other in others):
        return False
    if proposal.operation == "graft":
        return not any(node in tree.path(onto) for onto in others)
    above = node if proposal.operation == "split" else tree.parent[node]
    return all(tree.parent[other] == above for other in others)


def find_prunes(tree: Tree, idle: Collection[NodeId] = ()) -> list[Edit]:
    """Remove clusters with fewer than two children, the lowest first, and those that are `idle`.

    Algorithm 3: |C(P)| = 1. Chosen: a cluster without children is removed, too; and one that
    nobody gains anything from only passes through. The root stays while it has two children.
    """
    children = {cluster: len(tree.children[cluster]) for cluster in tree.clusters}
    edits: list[Edit] = []
    for cluster in reversed(tree.clusters):
        parent = tree.parent[cluster]
        if children[cluster] > 1 and (cluster not in idle or parent is None):
            continue
        edits.append(Prune(cluster))
        if parent is not None:
            children[parent] += children[cluster] - 1
    return edits


def find_joins(tree: Tree, space: Space) -> list[Edit]:
    """Every client of `space` that is not in the tree joins the nearest cluster.

    Newcomers do not count in the clusters that others join. Where no cluster has a position, they
    join the root.
    """
    new = [client for client in space.clients if client not in tree.members]
    if not new:
        return []
    nodes = space.locate(tree)
    clusters = nodes.known(tree.clusters)
    if not clusters:
        return joins_onto(tree, dict.fromkeys(new, tree.root))
    rows, at = [space.row_of[client] for client in new], nodes.rows(clusters)
    distances = space.distances(space.positions[rows], nodes.positions[at], nodes.variances[at])
    nearest = distances.argmin(axis=1).tolist()
    return joins_onto(tree, {client: clusters[k] for client, k in zip(new, nearest)})


def joins_onto(tree: Tree, onto: Mapping[NodeId, NodeId]) -> list[Edit]:
    """Every client joins the cluster given; in a tree of one client, all join a new root."""
    if tree.root not in tree.members or not onto:
        return [Join(node, cluster) for node, cluster in onto.items()]
    above, (first, *others) = NodeId(max(tree.next_id, 1 + max(onto))), onto
    return [Join(first, tree.root, above), *(Join(node, above) for node in others)]


def find_leaves(tree: Tree, present: Collection[NodeId]) -> list[Edit]:
    """Remove the clients that are not present, and prune clusters left with one child or none.

    If nobody is left, those who are present join the root first: what was learned is not lost.
    """
    gone = [client for client in tree.clients if client not in present]
    edits: list[Edit] = [Leave(client) for client in gone]
    if len(gone) == len(tree.clients):
        edits = [*joins_onto(tree, dict.fromkeys(present, tree.root)), *edits]
    return [*edits, *find_prunes(apply_all(tree, edits))] if edits else []
