"""SHAPE: reshape the tree to where its clients are now (the paper's Algorithms 2 to 5).

`find_*` only look and return edits; `edit.apply` changes. All thresholds are fractions of the
space's scale, so they mean the same for small and large models, early and late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from sofa_fl.topology.clustering.fast.distance_bounds import incoherences_at_most, to_rest_at_most
from sofa_fl.topology.clustering.fast.distance_matrix import TRIFLE, Ruler
from sofa_fl.topology.clustering.fast.mean_distances import means_of
from sofa_fl.topology.clustering.fast.merge_bounds import near_pairs, surely_apart
from sofa_fl.topology.clustering.fast.split_bounds import possible
from sofa_fl.topology.clustering.split_candidates import Parts, partitions
from sofa_fl.topology.geometry.node_positions import Floats, NodePositions
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.geometry.threads import one_thread
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, Merge, Prune, Split, apply_all
from sofa_fl.topology.tree.tree_arrays import Rows, slices

Operation = Literal["graft", "merge", "split", "prune"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeConfig:
    """When the tree changes.

    Attributes:
        operations: What SHAPE may do; nothing leaves the tree as DMAC built it.
        tolerance: A node moves if another parent is nearer by this factor more than 1 (epsilon).
        merge: Sibling clusters nearer than this fraction of the scale become one, unless they are
            far apart for how tight they are, or would together spread wider than `split` (tau).
        split: A cluster whose children spread wider than this fraction of the scale is split,
            if it falls into parts that stand out against each other (theta).
        max_parts: A split makes at most this many parts.
    """

    operations: tuple[Operation, ...] = ("graft", "merge", "split", "prune")
    tolerance: Annotated[float, Ge(0)] = 0.1
    merge: Annotated[float, Ge(0)] = 1.2
    split: Annotated[float, Ge(0)] = 0.65
    max_parts: Annotated[int, Ge(2)] = 8


@one_thread()
def shape(tree: Tree, space: Space, config: ShapeConfig) -> tuple[Tree, list[Edit]]:
    """Sweep over the tree until nothing changes; return the tree and the edits that led there.

    A second call on the same positions returns no edits. Should the sweeps run in a circle, the
    tree returned is the tightest in that circle, and so the same from anywhere in it.
    """
    trail, edits = [tree], [list[Edit]()]
    seen: dict[int, int] = {}
    while (found := sweep(trail[-1], space, config))[1]:
        after, done = found
        seen.setdefault(form(trail[-1]), len(trail) - 1)
        trail.append(after)
        edits.append(done)
        if (first := seen.get(form(after))) is not None:
            circle = range(first, len(trail) - 1)
            end = min(circle, key=lambda step: (_looseness(trail[step], space), form(trail[step])))
            return trail[end], [edit for step in edits[: end + 1] for edit in step]
    return trail[-1], [edit for step in edits for edit in step]


def sweep(tree: Tree, space: Space, config: ShapeConfig) -> tuple[Tree, list[Edit]]:
    """Graft, merge, split and prune once, each on the tree that the one before left."""
    edits: list[Edit] = []
    for operation, find in (
        ("graft", find_grafts),
        ("merge", find_merges),
        ("split", find_splits),
        ("prune", find_prunes),
    ):
        if operation in config.operations:
            found = find(tree, space, config)
            tree = apply_all(tree, found)
            edits += found
    return tree, edits


def find_grafts(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Nodes that are clearly nearer to another cluster on the level of their parent.

    A parent is taken without the node, so that no node holds itself in place.
    """
    bodies, order = space.locate(tree), tree.arrays
    ruler = Ruler(space, bodies.positions, bodies.inertia)
    clusters = np.flatnonzero(bodies.settled & ~order.is_client)
    clusters = clusters[np.argsort(order.level[clusters], kind="stable")]
    cuts = np.flatnonzero(np.diff(order.level[clusters])) + 1
    edits: list[Edit] = []
    for parents in np.split(clusters, cuts):
        # Nowhere to go, or an only child: pruning takes care of its parent.
        if len(parents) > 1:
            nodes = _children_of(bodies, parents[bodies.num_children[parents] > 1])
            edits += _grafts(space, bodies, ruler, nodes, parents, config)
    return edits


def find_merges(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Sibling clusters that are near, nearest first, unless they are two for good reason."""
    bodies, order = space.locate(tree), tree.arrays
    edits: list[Edit] = []
    taken: set[int] = set()
    reach, widest = config.merge * space.scale, config.split * space.scale
    near = near_pairs(space, bodies, reach, widest)
    doubtful = ~surely_apart(space, bodies, *near)
    for a, b in zip(*(rows[doubtful].tolist() for rows in near)):
        if taken & {a, b}:
            continue
        together = np.concatenate([order.children(a), order.children(b)])
        if _incoherence(space, bodies, together) > config.split:
            continue
        if not Parts(space, bodies, [order.children(a), order.children(b)]).set_apart():
            taken |= {a, b}
            nodes = (NodeId(int(order.nodes[a])), NodeId(int(order.nodes[b])))
            edits.append(Merge(nodes, NodeId(tree.next_id + len(edits))))
    return edits


def find_splits(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
    """Clusters whose children lie too wide apart and fall into parts that stand out.

    At most one part may be a child alone: a child is always coherent, and a cluster that is mere
    noise would else be peeled child by child.
    """
    bodies, order = space.locate(tree), tree.arrays
    # An empty child belongs to no part: pruning takes care of it.
    wide = incoherences_at_most(space, bodies) > config.split * (1 - 1e-9)
    rows = np.flatnonzero(wide & (bodies.num_children == order.num_children))
    keys = {
        row: (config, frozenset(order.below[order.children(row)].tolist())) for row in rows.tolist()
    }
    rows = np.array([row for row in keys if keys[row] not in space.whole], dtype=np.intp)
    edits: list[Edit] = []
    next_id = tree.next_id
    # A compact tree has fewer clusters than clients, and any split of it leaves at most as many.
    # Where nothing prunes, this keeps grafts and splits from growing the tree for ever.
    room = len(tree.clients) - int((~order.is_client).sum())
    for row in rows.tolist():
        children = order.children(row)
        # At most one part is a child alone, so there are at most half as many as children, and one.
        numbers = range(2, 1 + min(config.max_parts, (len(children) + 1) // 2))
        means = means_of(space, bodies, children) if numbers else None
        left = list(numbers) if means is None else possible(means, numbers)
        if not left or _incoherence(space, bodies, children) <= config.split:
            space.whole.add(keys[row])
            continue
        names = [NodeId(node) for node in order.nodes[children].tolist()]
        at = dict(zip(names, children.tolist()))
        positions, weights = bodies.positions[children], bodies.weights[children]
        for groups in partitions(names, positions, weights, left):
            added = len(groups) - (row > 0)
            if added > room:
                break
            alone = sum(len(group) == 1 for group in groups)
            if alone > 1 or (means is not None and not means.may_stand_out(_labels(names, groups))):
                continue
            parts = [np.array([at[node] for node in group]) for group in groups]
            if Parts(space, bodies, parts).stand_out():
                into = tuple(NodeId(next_id + k) for k in range(len(groups)))
                next_id, room = next_id + len(groups), room - added
                edits.append(Split(NodeId(int(order.nodes[row])), into, groups))
                break
        else:
            space.whole.add(keys[row])
    return edits


def _labels(names: Sequence[NodeId], groups: Sequence[Sequence[NodeId]]) -> Rows:
    """The group of each, by its place in `names`."""
    group = {node: label for label, nodes in enumerate(groups) for node in nodes}
    return np.array([group[node] for node in names], dtype=np.intp)


def find_prunes(tree: Tree, *_: object) -> list[Edit]:
    """Clusters with fewer than two children, the lowest first, wherever anybody is."""
    if tree.is_compact:
        return []
    stands_for: dict[NodeId, int] = dict.fromkeys(tree.members, 1)  # 0 if nothing is left of it
    edits: list[Edit] = []
    for cluster in reversed(tree.clusters):
        left = sum(stands_for[child] for child in tree.children[cluster])
        stands_for[cluster] = min(left, 1)
        if left < 2:
            edits.append(Prune(cluster))
    return edits


def _grafts(
    space: Space,
    bodies: NodePositions,
    ruler: Ruler,
    nodes: Rows,
    parents: Rows,
    config: ShapeConfig,
) -> Iterator[Edit]:
    """The grafts of `nodes`, each a child of one of `parents`, to others of these."""
    positions, inertia = bodies.positions, bodies.inertia
    sheet = ruler.sheet(parents)
    for some in (nodes[chosen] for chosen in slices(len(nodes), max(len(parents), len(sheet.T)))):
        own = np.searchsorted(parents, bodies.order.up[some])
        rough, error = ruler.rough(some, sheet)
        rough[np.arange(len(some)), own] = np.inf
        bound = rough.min(axis=1) * (1 - TRIFLE) - error
        bound *= (1 + config.tolerance) ** ruler.power
        # Only what may be nearer by enough is measured exactly.
        maybe = bound < to_rest_at_most(space, bodies, some)
        some, own, bound = some[maybe], own[maybe], bound[maybe]
        now = space.gaps(positions[some], *_swap(bodies.rest(some), inertia[some]))
        maybe = bound < now**ruler.power
        some, own, now = some[maybe], own[maybe], now[maybe]
        if not len(some):
            continue
        distances = space.apart(
            positions[some], positions[parents], inertia[some], inertia[parents]
        )
        distances[np.arange(len(some)), own] = np.inf
        nearest = distances.argmin(axis=1)
        least = distances[np.arange(len(some)), nearest]
        for at in np.flatnonzero(least * (1 + config.tolerance) < now):
            node, onto = bodies.order.nodes[[some[at], parents[nearest[at]]]].tolist()
            yield Graft(NodeId(node), NodeId(onto))


def _swap(rest: tuple[Floats, Floats], inertia: Floats) -> tuple[Floats, Floats, Floats]:
    return rest[0], inertia, rest[1]


def _children_of(bodies: NodePositions, parents: Rows) -> Rows:
    """The children of `parents`, parent by parent, but for those that are nowhere."""
    order = bodies.order
    chosen = np.zeros(len(order.up), dtype=bool)
    chosen[parents] = True
    rows = order.by_parent
    return rows[chosen[order.up[rows]] & bodies.settled[rows]]


def _incoherence(space: Space, bodies: NodePositions, rows: Rows) -> float:
    """That of the nodes of these rows that are somewhere."""
    rows = rows[bodies.settled[rows]]
    if space.scale <= 0:
        return 0.0
    return space.spread_of(bodies.positions[rows], bodies.weights[rows]) / space.scale


def form(tree: Tree) -> int:
    """A number that is the same for trees that differ only in the ids of their clusters."""
    return tree.arrays.form


def _looseness(tree: Tree, space: Space) -> tuple[float, ...]:
    """Squared distances of the nodes to their parents, summed level by level from the clients up.

    To nine digits, so that the order of a sum does not matter. The levels above the clients
    tell apart trees in which the same clients share a parent.
    """
    bodies, up = space.locate(tree), tree.arrays.up[1:]
    positions, inertia = bodies.positions, bodies.inertia
    gaps = space.gaps(positions[1:], positions[up], inertia[1:], inertia[up])
    level = tree.arrays.level[1:]
    totals = np.bincount(level, bodies.weights[1:] * gaps**2, minlength=tree.depth)
    return tuple(float(f"{total:.9g}") for total in totals)
