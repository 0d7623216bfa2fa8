"""What a member of a sum computes: its masked model, and later what unmasks the sum.

A member must call `masked` once for a plan, and `reveal` for one set of survivors only: whoever
calls them keeps a record of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from sofa_fl_flower.masked_sum.masks import (
    SIZE,
    Masked,
    encoded,
    mask,
    new_secret,
    pair_seed,
    public_of,
    sealed_share,
    split_secret,
    unsealed_share,
)
from sofa_fl_flower.masked_sum.plan import SumPlan

SEALED_SIZE = SIZE + 16  # bytes of an encrypted share
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class MaskedModel:
    """What a member sends first.

    Attributes:
        numbers: Its part of the mean, with all masks.
        shares: A row per member: a share of the seed of its own mask, encrypted for that member.
    """

    numbers: Masked
    shares: Bytes


@dataclass(frozen=True, slots=True)
class Revealed:
    """What a member sends second.

    Attributes:
        shares: A row per survivor: the share that this member has of its seed.
        unread: The survivors whose shares could not be decrypted; their rows mean nothing.
        seeds: A row per member that is no survivor: the seed of the mask shared with it.
    """

    shares: Bytes
    unread: tuple[int, ...]
    seeds: Bytes


def masked(plan: SumPlan, key: X25519PrivateKey, model: NDArray[np.float32]) -> MaskedModel:
    """Mask a model by a secret of the member's own, and by one with every other member.

    Raises:
        ValueError: A number of the model is too large, or a key is none.
    """
    own = plan.keys.index(public_of(key))
    weights = plan.weights
    numbers = encoded(model, weights[own], sum(weights))
    secret = new_secret()
    numbers += mask(secret.to_bytes(SIZE), len(numbers))
    for member, other in enumerate(plan.keys):
        if member != own:
            pair = mask(pair_seed(key, other, plan.digest), len(numbers))
            numbers = numbers + pair if own < member else numbers - pair
    shares = split_secret(secret, plan.threshold, len(plan.keys))
    rows = [sealed_share(share, key, to, plan.digest) for share, to in zip(shares, plan.keys)]
    return MaskedModel(numbers, byte_rows(rows, SEALED_SIZE))


def reveal(
    plan: SumPlan, key: X25519PrivateKey, survivors: tuple[int, ...], shares: Bytes
) -> Revealed:
    """Reveal the shares of survivors' own masks, and the masks shared with all others.

    `shares` has a row per survivor: what that survivor encrypted for this member.
    """
    found = [
        unsealed_share(row.tobytes(), key, plan.keys[member], plan.digest)
        for member, row in zip(survivors, shares)
    ]
    unread = tuple(one for one, share in zip(survivors, found) if share is None)
    gone = [one for one in range(len(plan.keys)) if one not in survivors]
    seeds = [pair_seed(key, plan.keys[one], plan.digest) for one in gone]
    rows = [share or bytes(SIZE) for share in found]
    return Revealed(byte_rows(rows, SIZE), unread, byte_rows(seeds, SIZE))


def byte_rows(rows: list[bytes], size: int) -> Bytes:
    """Rows of bytes as an array."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), size)
