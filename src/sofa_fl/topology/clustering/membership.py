"""Where clients go that the tree does not know yet, and what is left of it when some leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from sofa_fl.topology.clustering.default_edits import find_prunes
from sofa_fl.topology.clustering.pairs import ids
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Join, Leave, apply_all


def find_joins(tree: Tree, space: Space) -> list[Edit]:
    """Every client of `space` that is not in the tree joins the cluster it is nearest to.

    By the tree as it is: newcomers do not wait for each other. Where no client of the tree is in
    the space, there is nothing to be near to, and they join the root.
    """
    rows = [row for row, client in enumerate(space.clients) if client not in tree.members]
    if not rows:
        return []
    new = [space.clients[row] for row in rows]
    nodes = space.locate(tree)
    clusters = np.flatnonzero(nodes.known & ~tree.arrays.is_client)
    if not len(clusters):
        return joins_onto(tree, dict.fromkeys(new, tree.root))
    distances = space.distances(
        space.positions[rows], nodes.positions[clusters], 0.0, nodes.variances[clusters]
    )
    nearest = clusters[distances.argmin(axis=1)]
    return joins_onto(tree, dict(zip(new, ids(nodes, *nearest))))


def attach_newcomers(tree: Tree, space: Space) -> tuple[Tree, list[Edit]]:
    """The tree after the joins of newcomers, and these."""
    joins = find_joins(tree, space)
    return apply_all(tree, joins), joins


def joins_onto(tree: Tree, onto: Mapping[NodeId, NodeId]) -> list[Edit]:
    """Every client joins the cluster named; where a client is alone, all make one with it."""
    if tree.root not in tree.members:
        return [Join(node, cluster) for node, cluster in onto.items()]
    above, (first, *others) = NodeId(tree.next_id), onto
    return [Join(first, tree.root, above), *(Join(node, above) for node in others)]


def find_leaves(tree: Tree, present: Collection[NodeId]) -> list[Edit]:
    """All that are not present leave; clusters that have lost too many are pruned."""
    leaves: list[Edit] = [Leave(client) for client in tree.clients if client not in present]
    return with_prunes(tree, leaves) if leaves else []


def find_takeover(tree: Tree, onto: Mapping[NodeId, NodeId]) -> list[Edit]:
    """All leave, and the newcomers of `onto` join before: a tree is never without a client."""
    leaves = (Leave(client) for client in tree.clients)
    return with_prunes(tree, [*joins_onto(tree, onto), *leaves])


def with_prunes(tree: Tree, edits: Sequence[Edit]) -> list[Edit]:
    """The edits, and the prunes that they call for."""
    return [*edits, *find_prunes(apply_all(tree, edits))]
