"""What it takes to use a model outside of its run: part of every checkpoint."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.errors import RunError
from sofa_fl.federation import Federation
from sofa_fl.methods.base import Method


@dataclass(frozen=True, slots=True)
class Serving:
    """How inputs become what a network sees, and what is added to its outputs for whom.

    Attributes:
        own: What of the run is not in its folder: `data`, `network`, `method`, `metrics`.
        shape: Of one input.
        num_outputs: Of a network that the configuration makes.
        scale, shift: A network sees `x * scale + shift`.
        clients, priors: The clients there are, and a row for each; an empty one for nothing.
    """

    own: tuple[str, ...]
    shape: tuple[int, ...]
    num_outputs: int
    scale: float
    shift: float
    clients: tuple[int, ...]
    priors: NDArray[np.float32]


def serving_of(fed: Federation, own: tuple[str, ...]) -> Serving:
    """What to keep of a federation in a round."""
    rows = [row for row in fed.priors.values() if row is not None]
    train = fed.data.train
    return Serving(
        own,
        tuple(train.x.shape[1:]),
        fed.data.num_outputs,
        train.scale,
        train.shift,
        tuple(fed.clients),
        np.stack(rows) if rows else np.zeros((len(fed.clients), 0), dtype=np.float32),
    )


def state_type(method: Method[Any]) -> type[Any]:
    """The type of a method's state, by which a checkpoint is read."""
    hints = typing.get_type_hints(method.init)
    if len(kinds := typing.get_args(hints.get("return"))) != 2:
        raise RunError("to be resumed, a method must annotate init: -> tuple[<State>, Notes]")
    kind: type[Any] = kinds[0]
    return kind
