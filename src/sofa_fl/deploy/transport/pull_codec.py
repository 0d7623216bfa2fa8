"""The pulls of a task as one array on the wire, in place of a model each.

Their gradient is a weight decay and a constant (`pull_terms`): the server adds the constant up as a
node would, so a node that is told the sum trains to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sofa_fl.deploy.transport.wire import Packer, Parcel, Transport, typed
from sofa_fl.engine.base import Pull
from sofa_fl.engine.learner import pull_terms
from sofa_fl.models.flat import Vector


def pack_pulls(pulls: Sequence[Pull], num_trainable: int, packer: Packer) -> dict[str, Any]:
    """What of pulls goes into a message; nothing, if there are none."""
    if not pulls:
        return {}
    decay, constant = pull_terms(pulls, pulls[0].target[:num_trainable])
    scale = 1.0
    if packer.transport == "float16":  # pulls are weak: such small numbers would be lost
        scale = float(constant.abs().max()) or 1.0
        constant = constant / scale
    return {"decay": decay, "scale": scale, "constant": packer.add_model(constant)}


def read_pulls(spec: Any, asked: Parcel, size: int, transport: Transport) -> tuple[Pull, ...]:
    """Pulls with the same decay and constant, for a network of `size` trainable numbers."""
    if not spec:
        return ()
    constant: Vector = asked.model(spec.get("constant"), size, transport)
    constant = constant.mul_(-typed(spec, "scale", float))
    # One pull has all of the constant and a decay of 1, the other none and the rest of the decay.
    rest = typed(spec, "decay", float) / 2 - 0.5
    return Pull(constant, 0.5), Pull(torch.zeros_like(constant), rest)
