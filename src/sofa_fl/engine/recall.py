"""What is kept for the next call, so that it need not be made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def recall(kept: dict[K, T], key: K, make: Callable[[], T], most: int) -> T:
    """`kept[key]`, made if need be; of the others only those used last are kept."""
    value = kept.pop(key) if key in kept else None
    if value is None:
        while len(kept) >= most:
            kept.pop(next(iter(kept)))
        value = make()
    kept[key] = value
    return value


def round_up(num: int) -> int:
    """The next of few numbers: 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on."""
    step = max(1, (1 << (num - 1).bit_length()) // 8)
    return -(-num // step) * step
