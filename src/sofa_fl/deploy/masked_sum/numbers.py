"""Models as whole numbers modulo 2^32, and masks that look like noise to whoever lacks the seed."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

Masked = NDArray[np.uint32]
FRACTION_BITS = 24  # so that a weighted mean of numbers up to LIMIT fits into 32 bits
LIMIT = 64.0  # of a model's numbers
NUM_CHECKS = 2  # numbers after a model's, whose sum the server knows


def encoded(model: NDArray[np.float32], weight: int, total: int) -> Masked:
    """A member's part of the weighted mean, and its weight as a check; not masked yet.

    Raises:
        ValueError: A number is too large, or none.
    """
    if not (np.abs(model) <= LIMIT).all():
        raise ValueError(f"numbers of a model must be between -{LIMIT:g} and {LIMIT:g}")
    scaled = np.rint(model.astype(np.float64) * (weight / total * 2**FRACTION_BITS))
    checks = np.full(NUM_CHECKS, weight, dtype=np.int64)
    return np.concatenate([scaled.astype(np.int64), checks]).astype(np.uint32)


def decoded(numbers: Masked, weight: int, total: int) -> NDArray[np.float32]:
    """The weighted mean, from the sum of the parts of members with this weight together.

    Raises:
        ValueError: The checks are wrong, so that a mask is left in the sum.
    """
    model, checks = numbers[:-NUM_CHECKS], numbers[-NUM_CHECKS:]
    if (checks != np.uint32(weight % 2**32)).any():
        raise ValueError("a member has sent a wrong mask or a wrong share")
    signed = model.view(np.int32).astype(np.float64)
    mean: NDArray[np.float32] = (signed / 2**FRACTION_BITS * (total / weight)).astype(np.float32)
    return mean


def mask(seed: bytes, size: int) -> Masked:
    """`size` numbers from ChaCha20; a seed is used once."""
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(4 * size))
    return np.frombuffer(stream, dtype="<u4").astype(np.uint32, copy=False)
