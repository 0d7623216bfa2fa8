"""The settings of DMAC and SHAPE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Interval

Operation = Literal["graft", "merge", "split", "prune"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DmacConfig:
    """How wide the tree is, wherever DMAC builds one.

    Attributes:
        increase: The paper's rule: pairs nearer than the smallest distance times this factor
            (gamma) are joined in one step. 1 gives a binary tree except for ties; a larger factor
            gives a wider, flatter tree. None joins up to the next gap in the distances instead.
        certain: The first tree has no clusters that chance may have made: clients that differ only
            by noise then get a flat tree.
    """

    increase: Annotated[float, Ge(1)] | None = None
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeConfig:
    """When the tree changes.

    Losses count as fractions of the loss of a constant prediction.

    Attributes:
        operations: The edits that SHAPE may make; an empty list keeps the tree that DMAC built.
        every: Each node compares other places in the tree once in this many rounds; they take
            turns. A client with new data does at once.
        nearest: With how many of the nearest clusters a node, or a cluster, is compared.
        least: Clients must lose less by this much for a graft or a split; and clusters merge if
            their clients lose no more than half of it.
        chance: And by more than chance would give with this probability (Student's t).
        patience: A cluster that no client gains anything from is pruned after this many rounds.
        tolerance: The paper's rule: a node moves if its parent is farther than another one by more
            than this fraction (epsilon).
        merge: The paper's rule: sibling clusters merge if they are nearer than this fraction of the
            scale of all positions (tau).
        split: The paper's rule: a cluster is split if the spread of its children exceeds this
            fraction of the scale (theta).
    """

    operations: tuple[Operation, ...] = ("graft", "merge", "split", "prune")
    every: Annotated[int, Ge(1)] = 2
    nearest: Annotated[int, Ge(1)] = 3
    least: Annotated[float, Ge(0)] = 0.02
    chance: Annotated[float, Interval(gt=0, lt=0.5)] = 0.01
    patience: Annotated[int, Ge(1)] = 4
    tolerance: Annotated[float, Ge(0)] = 0.1
    merge: Annotated[float, Ge(0)] = 0.5
    split: Annotated[float, Ge(0)] = 0.9
