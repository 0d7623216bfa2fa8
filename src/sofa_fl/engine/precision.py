"""What a GPU multiplies float32 in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def multiplying_in_tf32(is_so: bool) -> Iterator[None]:
    """In here, if `is_so`, a GPU multiplies float32 with a ten-bit mantissa."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if is_so else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
