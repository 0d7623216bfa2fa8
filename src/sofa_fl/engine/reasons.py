"""Why a network cannot be stacked, in plain words where torch's are long or about vmap."""

from __future__ import annotations

import re

from sofa_fl.engine.map_clients import UndecidedError
from sofa_fl.models.networks import said_by

READS = "the network depends on a value (`if`, `.item()`) that may differ from client to client"
KEEPS = "the network keeps tensors between calls in attributes that are not buffers"
DRAWS = "the network draws random numbers with NumPy or Python's random"
SHAPES = "the shape of a tensor depends on values in it"
# What torch says of a function that it cannot map, and what it means for a network.
MEANING = {
    r"randomness error mode": "the network draws random numbers that cannot be drawn per client",
    r"\.item\(\)|data-dependent control flow": READS,
    r"dynamic shape|data pointer of Tensor|each tensor to be equal size": SHAPES,
    r"setup_context": "an autograd.Function that the network uses has no setup_context",
    r"escaped from inside": "the network recomputes a part of its forward pass (a checkpoint)",
    r"Jitted modules": "the network is compiled by torch.jit",
    r"`\.?data`": "the network writes to `.data`",
    r"more elements than `self`|match the broadcast shape": (
        "the network writes values that differ by client to a shared tensor"
    ),
}
NO_RULE = r"(?:Batching rule not implemented for|we do not yet support) ([\w:.]+\w)"
MOST = 160  # letters of what torch says otherwise


def reason_of(error: Exception) -> str:
    """Why an error came of stacking networks, as the end of a sentence."""
    if isinstance(error, UndecidedError):
        return READS
    said = said_by(error)
    if found := re.search(NO_RULE, said):
        return f"torch cannot map {found[1]} over clients"
    for pattern, meaning in MEANING.items():
        if re.search(pattern, said):
            return meaning
    return f"stacked, torch says '{said[:MOST]}{'…' if len(said) > MOST else ''}'"
