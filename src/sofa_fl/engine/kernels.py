"""Triton kernels for `windows` and `draws`: one pass over memory each; imported only with a GPU.

Sizes of layers are compile-time constants, so that index arithmetic is cheap; the number of
images is not, so that another number of clients compiles nothing.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _here(BLOCK: tl.constexpr, LARGE: tl.constexpr):
    """The numbers that this program computes; 32 bits count them faster, where they suffice."""
    program = tl.program_id(0)
    if LARGE:
        program = program.to(tl.int64)
    return program * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _patches(
    x,
    out,
    total,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGE: tl.constexpr,
):
    at = _here(BLOCK, LARGE)
    number = at % WIDTH
    window = at // WIDTH
    column, rest = window % (W - S + 1), window // (W - S + 1)
    row, image = rest % (H - R + 1), rest // (H - R + 1)
    i, j, channel = number // (S * C), number // C % S, number % C
    pixel = ((image * H + row + i) * W + column + j) * C + channel
    value = tl.load(x + pixel, (at < total) & (number < R * S * C), other=0.0)
    tl.store(out + at, tl.where(number == R * S * C, 1.0, value), at < total)


@triton.jit
def _unpatch(
    windows,
    out,
    total,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGE: tl.constexpr,
):
    at = _here(BLOCK, LARGE)
    channel, pixel = at % C, at // C
    column, rest = pixel % W, pixel // W
    row, image = rest % H, rest // H
    total_here = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(R):
        for j in tl.static_range(S):
            y, x = row - i, column - j
            inside = (y >= 0) & (y < H - R + 1) & (x >= 0) & (x < W - S + 1) & (at < total)
            window = (image * (H - R + 1) + y) * (W - S + 1) + x
            part = tl.load(windows + window * WIDTH + (i * S + j) * C + channel, inside, other=0.0)
            total_here += part.to(tl.float32)
    tl.store(out + at, total_here, at < total)


@triton.jit
def _corner(at, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr):
    """The first pixel of the tile that number `at` of the pooled images stands for."""
    channel, tile = at % C, at // C
    column, rest = tile % (W // SIZE), tile // (W // SIZE)
    row, image = rest % (H // SIZE), rest // (H // SIZE)
    return ((image * H + row * SIZE) * W + column * SIZE) * C + channel


@triton.jit
def _pool(
    x,
    best,
    which,
    total,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGE: tl.constexpr,
):
    at = _here(BLOCK, LARGE)
    corner = _corner(at, H, W, C, SIZE)
    top = tl.load(x + corner, at < total, other=0.0)
    first = tl.zeros((BLOCK,), tl.int32)
    for k in tl.static_range(1, SIZE * SIZE):
        other = tl.load(x + corner + (k // SIZE * W + k % SIZE) * C, at < total, other=0.0)
        first = tl.where(other > top, k, first)
        top = tl.where(other > top, other, top)
    tl.store(best + at, top, at < total)
    tl.store(which + at, first.to(tl.uint8), at < total)


@triton.jit
def _unpool(
    gradient,
    which,
    out,
    total,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGE: tl.constexpr,
):
    at = _here(BLOCK, LARGE)
    corner = _corner(at, H, W, C, SIZE)
    value = tl.load(gradient + at, at < total, other=0.0)
    first = tl.load(which + at, at < total, other=0).to(tl.int32)
    for k in tl.static_range(SIZE * SIZE):
        here = tl.where(first == k, value, 0.0)
        tl.store(out + corner + (k // SIZE * W + k % SIZE) * C, here, at < total)


@triton.jit
def _mix(x):
    """As `_mix32` of `draws`."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x21F0AAAD
    x = (x ^ ((x >> 15) & 0x1FFFF)) * -749064809
    return x ^ ((x >> 15) & 0x1FFFF)


@triton.jit
def _uniform(first, second, out, size, BLOCK: tl.constexpr):
    key = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = _mix(_mix(at ^ tl.load(first + key)) + tl.load(second + key))
    value = ((bits >> 8) & 0xFFFFFF).to(tl.float32) * 5.9604644775390625e-08
    tl.store(out + key.to(tl.int64) * size + at, value, at < size)


def patches(x: Tensor, rows: int, columns: int, width: int) -> Tensor:
    x = x.contiguous()
    num, high, wide, channels = x.shape
    out = x.new_empty(num, high - rows + 1, wide - columns + 1, width)
    _launch(_patches, out.numel(), x, out, sizes=(high, wide, channels, rows, columns, width))
    return out


def unpatch(windows: Tensor, rows: int, columns: int, channels: int) -> Tensor:
    num, high, wide, width = windows.shape
    high, wide = high + rows - 1, wide + columns - 1
    out = windows.new_empty(num, high, wide, channels)
    sizes = (high, wide, channels, rows, columns, width)
    _launch(_unpatch, out.numel(), windows.contiguous(), out, sizes=sizes)
    return out


def pool(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    x = x.contiguous()
    num, high, wide, channels = x.shape
    best = x.new_empty(num, high // size, wide // size, channels)
    which = torch.empty_like(best, dtype=torch.uint8)
    _launch(_pool, best.numel(), x, best, which, sizes=(high, wide, channels, size))
    return best, which


def unpool(gradient: Tensor, which: Tensor, size: int, height: int, width: int) -> Tensor:
    num, down, across, channels = gradient.shape
    tiled = (down * size, across * size) == (height, width)
    new = gradient.new_empty if tiled else gradient.new_zeros  # what no tile covers is zero
    out = new(num, height, width, channels)
    sizes = (height, width, channels, size)
    _launch(_unpool, gradient.numel(), gradient.contiguous(), which, out, sizes=sizes)
    return out


def uniform(first: Tensor, second: Tensor, size: int) -> Tensor:
    out = torch.empty(len(first), size, device=first.device)
    if out.numel():
        grid = (triton.cdiv(size, BLOCK), len(first))
        _uniform[grid](first.contiguous(), second.contiguous(), out, size, BLOCK)
    return out


def _launch(kernel, total: int, *tensors: Tensor, sizes: tuple[int, ...]) -> None:
    large = max(tensor.numel() for tensor in tensors) + BLOCK >= 1 << 31
    if total:
        kernel[(triton.cdiv(total, BLOCK),)](*tensors, total, *sizes, BLOCK, large)
