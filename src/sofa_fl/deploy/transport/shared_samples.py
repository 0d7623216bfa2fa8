"""A check of samples that come from another machine; the server and the receiver both make it."""

from __future__ import annotations

import numpy as np

from sofa_fl.data.federated_data import Arrays

LARGEST = 1e6  # number in an input or a target


def flaw_of_samples(samples: Arrays, num_outputs: int) -> str | None:
    """What is wrong with samples of others, if anything is."""
    if samples.y.dtype.kind != "f":
        if len(samples) and not 0 <= samples.y.min() <= samples.y.max() < num_outputs:
            return (
                f"labels of shared samples must be from 0 to {num_outputs - 1}, got "
                f"{samples.y.min()} to {samples.y.max()}"
            )
    elif not (np.abs(samples.y) <= LARGEST).all():
        return f"targets of shared samples must be between -{LARGEST:g} and {LARGEST:g}"
    if samples.x.dtype.kind == "f" and not (np.abs(samples.x) <= LARGEST).all():
        return f"inputs of shared samples must be between -{LARGEST:g} and {LARGEST:g}"
    return None
