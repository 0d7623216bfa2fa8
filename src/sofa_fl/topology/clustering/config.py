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
    """

    increase: Annotated[float, Ge(1)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeConfig:
    """When the tree changes. Thresholds are fractions of the space's scale.

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
