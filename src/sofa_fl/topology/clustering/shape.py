"""SHAPE, self-organizing hierarchical adaptive propagation and evolution: keep the tree up to date.

It applies the rules for grafts, merges, splits and prunes (the paper's Algorithms 2 to 5). Here is
also where clients go that the tree does not know yet, and what is left of it when some leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from sofa_fl.topology.clustering.config import DmacConfig, Operation, ShapeConfig
from sofa_fl.topology.clustering.default_edits import find_grafts, find_merges, foresee_grafts
from sofa_fl.topology.clustering.default_splits import find_splits, foresee_splits
from sofa_fl.topology.clustering.dmac import Nearness, dmac, one_thread, paper_dmac
from sofa_fl.topology.clustering.evidence import Evidence, Question
from sofa_fl.topology.clustering.paper_edits import paper_grafts, paper_merges, paper_splits
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Join, Leave, Prune, apply_all

Build = Callable[[Space, DmacConfig, int], Tree]
EditRule = Callable[[Tree, Evidence, ShapeConfig], list[Edit]]
Foresight = Callable[[Tree, Evidence, ShapeConfig], list[Question]]
E = TypeVar("E", bound=Evidence)


def find_prunes(tree: Tree, *_: object) -> list[Edit]:
    """Remove clusters with fewer than two children, the lowest first, wherever clients are.

    Algorithm 3: |C(P)| = 1. Chosen: a cluster without children goes too.
    """
    stands_for: dict[NodeId, int] = dict.fromkeys(tree.members, 1)  # 0 if nothing is left of it
    edits: list[Edit] = []
    for cluster in reversed(tree.clusters):
        num_left = sum(stands_for[child] for child in tree.children[cluster])
        stands_for[cluster] = min(num_left, 1)
        if num_left < 2:
            edits.append(Prune(cluster))
    return edits


@dataclass(frozen=True)
class TreeRules:
    """How a tree is built and reshaped. Rules only look; what they return is then applied.

    Attributes:
        build: The first tree over the clients of a space; ids of clusters are not below the number.
        graft: The grafts that a tree needs, given where clients are and what models lose.
        merge: The merges.
        split: The splits.
        prune: The prunes.
        order: The order of the operations.
        foresight: What some operations ask about in any case, with more than held-out samples.
    """

    build: Build
    graft: EditRule
    merge: EditRule
    split: EditRule
    prune: EditRule = find_prunes
    order: tuple[Operation, ...] = ("graft", "merge", "split", "prune")
    foresight: Mapping[Operation, Foresight] = field(default_factory=dict)


def default_tree_rules(neighbors: Nearness | None = None) -> TreeRules:
    """Our rules; with `plain_neighbors` they are slower and give the same tree."""
    return TreeRules(
        build=partial(dmac, neighbors=neighbors),
        graft=find_grafts,
        merge=find_merges,
        split=partial(find_splits, neighbors=neighbors),
        foresight={"graft": foresee_grafts, "split": foresee_splits},
    )


def paper_tree_rules(neighbors: Nearness | None = None) -> TreeRules:
    """The rules as the paper writes them: Algorithms 1 to 5. They ask for no losses.

    Chosen: the order of the operations, with pruning last, so that no cluster of one child
    outlives a round. For a space with `linkage="centroid"`.
    """
    return TreeRules(
        build=partial(paper_dmac, neighbors=neighbors),
        graft=paper_grafts,
        merge=paper_merges,
        split=paper_splits,
    )


def foresee(
    tree: Tree, evidence: Evidence, config: ShapeConfig, rules: TreeRules
) -> list[Question]:
    """What `shape` will ask about, so that it can be asked together with something else."""
    looks = [rules.foresight.get(name) for name in rules.order if name in config.operations]
    return [question for look in looks if look for question in look(tree, evidence, config)]


@one_thread()
def shape(
    tree: Tree, evidence: E, config: ShapeConfig, rules: TreeRules | None = None
) -> tuple[Tree, list[Edit], E]:
    """Reshape the tree to what its clients are now: one operation after the other.

    Return the tree, the edits that led to it, and the evidence after them.
    """
    rules = rules or default_tree_rules()
    edits: list[Edit] = []
    for operation in rules.order:
        if operation in config.operations:
            needed = getattr(rules, operation)(tree, evidence, config)
            if needed:
                tree, edits = apply_all(tree, needed), [*edits, *needed]
                evidence = evidence.after(tree, needed)
    return tree, edits, evidence


def find_joins(
    tree: Tree, space: Space, suited: Mapping[NodeId, NodeId] | None = None
) -> list[Edit]:
    """Every client of `space` that is not in the tree joins the cluster it is nearest to.

    By the tree as it is: newcomers do not wait for each other. Where clusters have no client in the
    space, what is nearest is not known, and newcomers join the cluster whose model suits them, by
    `suited`. If that is not known either, they join the nearest that has one, or else the root.
    """
    new = [client for client in space.clients if client not in tree.members]
    if not new:
        return []
    nodes = space.locate(tree)
    clusters = nodes.known(tree.clusters)
    if suited and len(clusters) < len(tree.clusters):
        return joins_onto(tree, {client: suited[client] for client in new})
    if not clusters:
        return joins_onto(tree, dict.fromkeys(new, tree.root))
    rows, at = [space.row_of[client] for client in new], nodes.rows(clusters)
    distances = space.distances(space.positions[rows], nodes.positions[at], nodes.variances[at])
    nearest = distances.argmin(axis=1).tolist()
    return joins_onto(tree, {client: clusters[k] for client, k in zip(new, nearest)})


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
