"""Where every random draw comes from: one seed, spread by name, never a global generator."""

from __future__ import annotations

import hashlib

import numpy as np


def seed_for(seed: int, *names: int | str) -> int:
    """A 63-bit seed for one purpose, e.g. `seed_for(seed, round, node, "train")`.

    The names are hashed with their types, so `1` and `"1"` give different draws, and
    a new purpose never changes the draws of an old one.
    """
    digest = hashlib.blake2b(repr((seed, *names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def rng_for(seed: int, *names: int | str) -> np.random.Generator:
    """A NumPy generator for one purpose; see `seed_for`."""
    return np.random.default_rng(seed_for(seed, *names))
