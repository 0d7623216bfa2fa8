"""Memory of a process that trains: kept by the allocator, or read where others read it too."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


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


def reading(array: NDArray[Any]) -> Tensor:
    """A tensor on the memory of `array`, which may be a file's or another process's: only read it.

    Torch has no tensors that cannot be written to, and warns where the memory cannot.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)
