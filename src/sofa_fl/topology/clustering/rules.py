"""Rules as values: what builds a tree and what edits it; the paper's set and ours.

rules = dataclasses.replace(default_tree_rules(), merge=my_merge)
tree, edits = shape(tree, space, config, rules)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
from sofa_fl.topology.tree import Tree
from sofa_fl.topology.tree.edits import Edit

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
