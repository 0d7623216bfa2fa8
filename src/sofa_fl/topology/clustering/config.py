"""The settings of DMAC and SHAPE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

Operation = Literal["graft", "merge", "split", "prune"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DmacConfig:
    """How wide the first tree is, and how SHAPE's default split finds groups.

    Attributes:
        increase: The paper's rule: pairs nearer than the smallest distance times this factor
            (gamma) are joined in one step. 1 gives a binary tree except for ties; a larger factor
            gives a wider, flatter tree. None joins up to the next gap in the distances instead.
        certain: Also dissolve clusters that chance may have made: clients that differ only by
            noise then get a flat tree. SHAPE makes groups of which DMAC is certain at once; other
            groups, and all groups without this or with `increase`, must gain by it.
    """

    increase: Annotated[float, Ge(1)] | None = None
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeConfig:
    """When the tree changes.

    Attributes:
        operations: The edits that SHAPE may make; an empty list keeps the tree that DMAC built.
        every: Each client compares the models of other clusters once in this many rounds, and so
            does each pair of sibling clusters; they take turns.
        tolerance: The paper's rule: a node moves if its parent is farther than another one by more
            than this fraction (epsilon).
        merge: The paper's rule: sibling clusters merge if they are nearer than this fraction of the
            scale of all positions (tau).
        split: The paper's rule: a cluster is split if the spread of its children exceeds this
            fraction of the scale (theta).
    """

    operations: tuple[Operation, ...] = ("graft", "merge", "split", "prune")
    every: Annotated[int, Ge(1)] = 2
    tolerance: Annotated[float, Ge(0)] = 0.1
    merge: Annotated[float, Ge(0)] = 0.5
    split: Annotated[float, Ge(0)] = 0.9
