"""Triton kernels that read models where they lie in memory; imported only with a GPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 1024
MOST_ROWS = 65_535  # of one launch, by CUDA


@triton.jit(do_not_specialize=["num_rows"])  # else it is compiled for several of them
def _add_up(places, factors, out, num_rows, size, BLOCK: tl.constexpr):
    """`places` is where every row's terms begin, and after that where every term's vector does."""
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for term in range(tl.load(places + row), tl.load(places + row + 1)):
        vector = tl.load(places + num_rows + 1 + term).to(tl.pointer_type(tl.float32))
        total += tl.load(factors + term) * tl.load(vector + at, at < size, other=0.0)
    tl.store(out + row.to(tl.int64) * size + at, total, at < size)


@triton.jit(do_not_specialize=["num_pairs"])
def _square_distances(places, out, num_pairs, size, BLOCK: tl.constexpr):
    """`places` is where the first vectors of all pairs lie, and then where the second ones do."""
    pair = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(places + pair).to(tl.pointer_type(tl.float32))
    second = tl.load(places + num_pairs + pair).to(tl.pointer_type(tl.float32))
    inside = at < size
    way = tl.load(first + at, inside, other=0.0) - tl.load(second + at, inside, other=0.0)
    tl.store(out + pair * tl.num_programs(0) + tl.program_id(0), tl.sum(way * way))


def sum_by_address(sums: Sequence[Sequence[tuple[Tensor, float]]], out: Tensor) -> None:
    """Row `i` of `out` becomes the weighted sum of the vectors in `sums[i]`, each read once."""
    for first in range(0, len(sums), MOST_ROWS):
        _add_up_some(sums[first : first + MOST_ROWS], out[first : first + MOST_ROWS])


def _add_up_some(sums: Sequence[Sequence[tuple[Tensor, float]]], out: Tensor) -> None:
    terms = [term for row in sums for term in row]
    begins = np.cumsum([0, *map(len, sums)])
    places = np.array([*begins.tolist(), *(vector.data_ptr() for vector, _ in terms)])
    factors = np.array([weight for _, weight in terms], dtype=np.float32)
    num_rows, size = out.shape
    on_gpu = _on_device(places, out), _on_device(factors, out)
    grid = (triton.cdiv(size, BLOCK), num_rows)
    _add_up[grid](*on_gpu, out, num_rows, size, BLOCK)


def distances_by_address(vectors: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """How far every vector is from its counterpart, for no more than `MOST_ROWS` of them."""
    num, size, like = len(vectors), len(vectors[0]), vectors[0]
    places = np.array([vector.data_ptr() for vector in (*vectors, *others)])
    grid = (triton.cdiv(size, BLOCK), num)
    squares = like.new_empty(num, grid[0])
    _square_distances[grid](_on_device(places, like), squares, num, size, BLOCK)
    return squares.double().sum(dim=1).sqrt().float()


def _on_device(array: NDArray[Any], like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like.device, non_blocking=True)
