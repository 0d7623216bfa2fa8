"""SHAPE, self-organizing hierarchical adaptive propagation and evolution: keep the tree up to date.

It applies the rules for grafts, merges, splits and prunes (the paper's Algorithms 2 to 5). This
file also decides where new clients join the tree, and removes those that leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sofa_fl.topology.clustering.config import DmacConfig, Operation, ShapeConfig
from sofa_fl.topology.clustering.default_edits import find_grafts, find_merges, foresee_grafts
from sofa_fl.topology.clustering.default_splits import (
    find_splits,
    foresee_splits,
    prepare_splits,
)
from sofa_fl.topology.clustering.dmac import dmac, one_thread, paper_dmac
from sofa_fl.topology.clustering.evidence import Evidence, Question
from sofa_fl.topology.clustering.paper_edits import paper_grafts, paper_merges, paper_splits
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Join, Leave, Prune, apply_all

Build = Callable[[Space, DmacConfig, int], Tree]
EditRule = Callable[[Tree, Evidence, ShapeConfig], list[Edit]]
Foresight = Callable[[Tree, Evidence, ShapeConfig], list[Question]]
Preparation = Callable[[Tree, Evidence, ShapeConfig], None]
E = TypeVar("E", bound=Evidence)


def find_prunes(tree: Tree, *_: object) -> list[Edit]:
    """Remove clusters with fewer than two children, the lowest first.

    Algorithm 3: |C(P)| = 1. Chosen: a cluster without children is removed, too.
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
    """How a tree is built and reshaped. Rules change nothing; they return edits.

    Attributes:
        build: Builds the first tree over the clients of a space; the number is the smallest id that
            a cluster may have.
        graft: Finds grafts, given the positions of clients and the losses of models.
        merge: Finds merges.
        split: Finds splits.
        prune: Finds prunes.
        order: The order of the operations.
        foresight: For some operations, the losses that they will certainly ask for, so that these
            can be measured together with others.
        preparation: For some operations, what they can work out before these losses are known.
    """

    build: Build
    graft: EditRule
    merge: EditRule
    split: EditRule
    prune: EditRule = find_prunes
    order: tuple[Operation, ...] = ("graft", "merge", "split", "prune")
    foresight: Mapping[Operation, Foresight] = field(default_factory=dict)
    preparation: Mapping[Operation, Preparation] = field(default_factory=dict)


def default_tree_rules() -> TreeRules:
    """Our rules."""
    return TreeRules(
        build=dmac,
        graft=find_grafts,
        merge=find_merges,
        split=find_splits,
        foresight={"graft": foresee_grafts, "split": foresee_splits},
        preparation={"split": prepare_splits},
    )


def paper_tree_rules() -> TreeRules:
    """The rules as the paper writes them: Algorithms 1 to 5. They use no losses.

    Chosen: the order of the operations, with pruning last, so that no cluster of one child
    outlives a round. They need a space with `linkage="centroid"`.
    """
    return TreeRules(paper_dmac, paper_grafts, paper_merges, paper_splits)


def foresee(
    tree: Tree, evidence: Evidence, config: ShapeConfig, rules: TreeRules
) -> list[Question]:
    """The losses that `shape` will certainly ask for, to be measured together with others."""
    looks = [rules.foresight.get(name) for name in rules.order if name in config.operations]
    return [question for look in looks if look for question in look(tree, evidence, config)]


@one_thread()
def prepare(tree: Tree, evidence: Evidence, config: ShapeConfig, rules: TreeRules) -> None:
    """Work out what `shape` needs whatever models lose; evidence on the same space has it then."""
    for name in rules.order:
        if name in config.operations and name in rules.preparation:
            rules.preparation[name](tree, evidence, config)


@one_thread()
def shape(
    tree: Tree, evidence: E, config: ShapeConfig, rules: TreeRules | None = None
) -> tuple[Tree, list[Edit], E]:
    """Adapt the tree to its clients: one pass over the operations.

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
    """Every client of `space` that is not in the tree joins the nearest cluster.

    Newcomers do not count in the clusters that others join. If a cluster has no client in the
    space, the nearest cluster is not known; newcomers then join the cluster that `suited` names for
    each, whose model suits them best. Without `suited`, they join the nearest cluster that has a
    position, or the root if none has.
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
    """Every client joins the cluster given; in a tree of one client, all join a new root."""
    if tree.root not in tree.members:
        return [Join(node, cluster) for node, cluster in onto.items()]
    above, (first, *others) = NodeId(tree.next_id), onto
    return [Join(first, tree.root, above), *(Join(node, above) for node in others)]


def find_leaves(tree: Tree, present: Collection[NodeId]) -> list[Edit]:
    """Remove the clients that are not present, and prune clusters left with one child or none."""
    leaves: list[Edit] = [Leave(client) for client in tree.clients if client not in present]
    return with_prunes(tree, leaves) if leaves else []


def find_takeover(tree: Tree, onto: Mapping[NodeId, NodeId]) -> list[Edit]:
    """Replace all clients by newcomers, which join first: a tree always has a client."""
    leaves = (Leave(client) for client in tree.clients)
    return with_prunes(tree, [*joins_onto(tree, onto), *leaves])


def with_prunes(tree: Tree, edits: Sequence[Edit]) -> list[Edit]:
    """The edits, and the prunes that they make necessary."""
    return [*edits, *find_prunes(apply_all(tree, edits))]
