"""The settings of DMAC and SHAPE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

Operation = Literal["graft", "merge", "split", "prune"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DmacConfig:
    """How wide the tree is.

    Attributes:
        increase: Pairs nearer than the smallest distance times this are joined in one step
            (gamma): 1 gives a binary tree but for ties, more gives a wider, flatter one. None
            takes for every cluster what the distances say: all is joined up to the next gap.
        certain: Ask for more than a gap: clients that differ by noise alone then get a flat tree.
            SHAPE looks for less, since losses decide there.
    """

    increase: Annotated[float, Ge(1)] | None = None
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeConfig:
    """When the tree changes.

    Attributes:
        operations: What SHAPE may do; nothing leaves the tree as DMAC built it.
        every: A client compares the models of other clusters once in this many rounds, and so do
            two sibling clusters; not all in the same round. 1 is every round.
        tolerance: The paper's rule: a node moves if another parent is nearer by this factor more
            than 1 (epsilon).
        merge: The paper's rule: sibling clusters nearer than this fraction of the scale of all
            positions merge (tau).
        split: The paper's rule: a cluster whose children spread wider than this fraction of the
            scale is split (theta).
    """

    operations: tuple[Operation, ...] = ("graft", "merge", "split", "prune")
    every: Annotated[int, Ge(1)] = 2
    tolerance: Annotated[float, Ge(0)] = 0.1
    merge: Annotated[float, Ge(0)] = 0.5
    split: Annotated[float, Ge(0)] = 0.9
