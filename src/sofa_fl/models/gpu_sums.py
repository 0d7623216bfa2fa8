"""Sums of models, and their distances, on a GPU: one operation reads each model where it lies.

Copies of models side by side, which torch needs to add them together, are two more passes over
memory: of a thousand siblings of six megabytes each, that is most of the time their mean takes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

Terms = Sequence[tuple[Tensor, float]]  # vectors, and what each is multiplied by


def add_up(sums: Sequence[Terms], out: Tensor) -> bool:
    """Make row `i` of `out` the weighted sum of the vectors in `sums[i]`; False if torch must.

    A row is as long as `out` has columns; vectors may go on after that.
    """
    if not out.is_cuda or not _fit((vector for terms in sums for vector, _ in terms), out):
        return False
    kernels = _kernels()
    if kernels is None:
        return False
    kernels.sum_by_address(sums, out)
    return True


def measure(vectors: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor] | None:
    """How far every vector is from its counterpart; None if torch must."""
    like, every = vectors[0], (*vectors, *others)
    if not like.is_cuda or not _fit(every, like) or any(v.shape != like.shape for v in every):
        return None
    kernels = _kernels()
    return None if kernels is None else list(kernels.distances_by_address(vectors, others))


def _fit(vectors: Iterable[Tensor], like: Tensor) -> bool:
    """Whether a kernel can read as many numbers of each vector as `like` has in a row."""
    device, length = like.device, like.shape[-1]
    each = {id(vector): vector for vector in vectors}  # most of them stand in many sums
    return all(
        v.dtype == torch.float32
        and v.shape[0] >= length
        and v.is_contiguous()
        and v.device == device
        for v in each.values()
    )


@cache
def _kernels() -> ModuleType | None:
    """The kernels, if they compile here (Triton needs a C compiler); they are tried once."""
    if importlib.util.find_spec("triton") is None:
        return None
    from sofa_fl.models import sum_kernels as kernels

    try:
        ones = torch.ones(2, device="cuda")
        kernels.sum_by_address([[(ones, 1.0)]], torch.empty(1, 2, device="cuda"))
        kernels.distances_by_address([ones], [ones])
    except Exception:  # whatever is missing here, it will not be there later
        return None
    return kernels
