"""Which network is trained: a configuration, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

Aggregate = Literal["mean", "median", "trimmed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The network that is trained.

    Attributes:
        name: `cnn` is the paper's network (two convolutions, three linear layers); `mlp` has only
            hidden layers. A run records `own` for a network that Python code passed.
        batch_norm: Normalize after each convolution or hidden layer.
        hidden: Width of the hidden layer of `mlp`, or a list of widths, one per hidden layer; with
            an empty list, the network is a logistic (or linear) regression.
    """

    name: Literal["cnn", "mlp", "own"] = "cnn"
    batch_norm: bool = False
    hidden: Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(1)], ...] = 200
