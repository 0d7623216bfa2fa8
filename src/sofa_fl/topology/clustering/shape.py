"""SHAPE, self-organizing hierarchical adaptive propagation and evolution: keep the tree up to date.

It applies the rules for grafts, merges, splits and prunes (the paper's Algorithms 2 to 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.config import DmacConfig, Operation, ShapeConfig
from sofa_fl.topology.clustering.default_edits import (
    find_grafts,
    find_merges,
    find_prunes,
    find_splits,
)
from sofa_fl.topology.clustering.dmac import dmac, paper_dmac
from sofa_fl.topology.clustering.fast.candidates import FastCandidates
from sofa_fl.topology.clustering.paper_edits import paper_grafts, paper_merges, paper_splits
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.geometry.threads import one_thread
from sofa_fl.topology.tree import Tree
from sofa_fl.topology.tree.edits import Edit, apply_all

Build = Callable[[Space, DmacConfig, int], Tree]
EditRule = Callable[[Tree, Space, ShapeConfig], list[Edit]]


@dataclass(frozen=True)
class TreeRules:
    """How a tree is built and reshaped. Rules only look; what they return is then applied.

    Attributes:
        build: The first tree over the clients of a space; ids of clusters are not below the number.
        graft: The grafts that a tree needs in a space.
        merge: The merges.
        split: The splits.
        prune: The prunes.
        order: The order of the operations in a pass.
        until_stable: Whether passes follow each other until nothing changes.
    """

    build: Build
    graft: EditRule
    merge: EditRule
    split: EditRule
    prune: EditRule = find_prunes
    order: tuple[Operation, ...] = ("graft", "merge", "split", "prune")
    until_stable: bool = True


def default_tree_rules(candidates: Candidates | None = None) -> TreeRules:
    """Our rules; `Candidates()` for the plain ones, which are slower and give the same tree."""
    candidates = candidates or FastCandidates()
    return TreeRules(
        build=partial(dmac, candidates=candidates),
        graft=find_grafts,
        merge=partial(find_merges, candidates=candidates),
        split=partial(find_splits, candidates=candidates),
    )


def paper_tree_rules(candidates: Candidates | None = None) -> TreeRules:
    """The rules as the paper writes them: Algorithms 1 to 5, one pass per round.

    Chosen: the order of the operations, with pruning last, so that no cluster of one child
    outlives a round. For a space with `linkage="centroid"`.
    """
    return TreeRules(
        build=partial(paper_dmac, candidates=candidates or FastCandidates()),
        graft=paper_grafts,
        merge=paper_merges,
        split=paper_splits,
        until_stable=False,
    )


@one_thread()
def shape(
    tree: Tree, space: Space, config: ShapeConfig, rules: TreeRules | None = None
) -> tuple[Tree, list[Edit]]:
    """Reshape the tree to where its clients are now; return it and the edits that led there.

    With our rules, passes follow each other until nothing changes, and a second call on the same
    positions returns no edits. Should the passes run in a circle, the tree returned is the tightest
    in that circle, and so the same from anywhere in it.
    """
    rules = rules or default_tree_rules()
    trees, edits, first_seen = [tree], [list[Edit]()], dict[int, int]()
    while True:
        tree, done = one_pass(trees[-1], space, config, rules)
        if not done:
            break
        first_seen.setdefault(form(trees[-1]), len(trees) - 1)
        trees.append(tree)
        edits.append(done)
        if not rules.until_stable:
            break
        if (start := first_seen.get(form(tree))) is not None:
            circle = range(start, len(trees) - 1)
            end = min(circle, key=lambda at: (_looseness(trees[at], space), form(trees[at])))
            trees, edits = trees[: end + 1], edits[: end + 1]
            break
    return trees[-1], [edit for done in edits for edit in done]


def one_pass(
    tree: Tree, space: Space, config: ShapeConfig, rules: TreeRules
) -> tuple[Tree, list[Edit]]:
    """Apply each rule once, in order, to the tree that the one before left."""
    edits: list[Edit] = []
    for operation in rules.order:
        if operation in config.operations:
            rule = getattr(rules, operation)
            needed = rule(tree, space, config)
            tree = apply_all(tree, needed)
            edits += needed
    return tree, edits


def form(tree: Tree) -> int:
    """A number that is the same for trees that differ only in the ids of their clusters."""
    return tree.arrays.form


def _looseness(tree: Tree, space: Space) -> tuple[float, ...]:
    """Squared distances of the nodes to their parents, summed level by level from the clients up.

    To nine digits, so that the order of a sum does not matter. The levels above the clients
    tell apart trees in which the same clients share a parent.
    """
    nodes, parents = space.locate(tree), tree.arrays.parents[1:]
    positions, variances = nodes.positions, nodes.variances
    distances = space.paired_distances(
        positions[1:], positions[parents], variances[1:], variances[parents]
    )
    squares = nodes.weights[1:] * distances**2
    totals = np.bincount(tree.arrays.level[1:], squares, minlength=tree.depth)
    return tuple(float(f"{total:.9g}") for total in totals)
