"""SHAPE, self-organizing hierarchical adaptive propagation and evolution: keep the tree up to date.

It applies the rules for grafts, merges, splits and prunes (the paper's Algorithms 2 to 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import TypeVar

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.config import DmacConfig, Operation, ShapeConfig
from sofa_fl.topology.clustering.default_edits import (
    find_grafts,
    find_merges,
    find_prunes,
    find_splits,
)
from sofa_fl.topology.clustering.dmac import dmac, paper_dmac
from sofa_fl.topology.clustering.evidence import Evidence
from sofa_fl.topology.clustering.paper_edits import paper_grafts, paper_merges, paper_splits
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.geometry.threads import one_thread
from sofa_fl.topology.tree import Tree
from sofa_fl.topology.tree.edits import Edit, apply_all

Build = Callable[[Space, DmacConfig, int], Tree]
EditRule = Callable[[Tree, Evidence, ShapeConfig], list[Edit]]
E = TypeVar("E", bound=Evidence)


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
    """

    build: Build
    graft: EditRule
    merge: EditRule
    split: EditRule
    prune: EditRule = find_prunes
    order: tuple[Operation, ...] = ("graft", "merge", "split", "prune")


def default_tree_rules(candidates: Candidates | None = None) -> TreeRules:
    """Our rules; `Candidates()` for the plain ones, which are slower and give the same tree."""
    return TreeRules(
        build=partial(dmac, candidates=candidates),
        graft=find_grafts,
        merge=find_merges,
        split=find_splits,
    )


def paper_tree_rules(candidates: Candidates | None = None) -> TreeRules:
    """The rules as the paper writes them: Algorithms 1 to 5. They ask for no losses.

    Chosen: the order of the operations, with pruning last, so that no cluster of one child
    outlives a round. For a space with `linkage="centroid"`.
    """
    return TreeRules(
        build=partial(paper_dmac, candidates=candidates),
        graft=GRAFT,
        merge=MERGE,
        split=SPLIT,
    )


def by_positions(rule: Callable[[Tree, Space, ShapeConfig], list[Edit]]) -> EditRule:
    """A rule that goes by the positions of the clients alone."""

    @wraps(rule)
    def asked(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
        return rule(tree, evidence.space, config)

    return asked


GRAFT, MERGE, SPLIT = map(by_positions, (paper_grafts, paper_merges, paper_splits))


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
                evidence = evidence.after(tree, needed)
                tree, edits = apply_all(tree, needed), [*edits, *needed]
    return tree, edits, evidence
