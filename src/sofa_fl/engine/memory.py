"""Memory of a process that trains, kept by the allocator."""

from __future__ import annotations

import ctypes


def keep_memory() -> None:
    """Ask the allocator not to hand memory back after every batch or model, here and in forks.

    To get it again costs a page fault every 4 KB: 2.3 ms for the paper's model, which is copied
    in 0.2 ms.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if mallopt is not None:
        mmap_threshold, trim_threshold, top_pad = -3, -1, -2
        mallopt(mmap_threshold, 1 << 30)
        mallopt(trim_threshold, (1 << 31) - 1)
        mallopt(top_pad, 64 << 20)
