"""Triton kernels of a first layer: convolution, max-pooling and ReLU in one pass over memory.

Of one input channel, a convolution's outputs are 32 times as large as its inputs, and with all its
patches 12 times: writing and reading them took most of a step. Here they never leave a processor.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # pooled pixels of a program
PROGRAMS = 1024  # about as many as keep a GPU busy


@triton.jit
def _windows(
    x, image, row, column, inside,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    TOP: tl.constexpr, LEFT: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The windows of some pixels as rows of `K` numbers: their pixels, a one, and zeros."""
    number = tl.arange(0, K)[None, :]
    y = row[:, None] + number // (S * C) - TOP
    z = column[:, None] + number // C % S - LEFT
    there = inside[:, None] & (number < R * S * C) & (y >= 0) & (y < H) & (z >= 0) & (z < W)
    value = tl.load(x + ((image[:, None] * H + y) * W + z) * C + number % C, there, other=0.0)
    value = tl.where(number == R * S * C, 1.0, value.to(tl.float32))
    return value.to(x.dtype.element_ty)


@triton.jit
def _forward(
    x, weight, bias, best, which, batch,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    TOP: tl.constexpr, LEFT: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
    OUT: tl.constexpr, SIZE: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client, pixels = tl.program_id(1), batch * DOWN * ACROSS
    number, out = tl.arange(0, K)[:, None], tl.arange(0, N)[None, :]
    place = ((client * OUT + out) * C + number % C) * R * S + number // C
    w = tl.load(weight + place, (number < R * S * C) & (out < OUT), other=0.0)
    if HAS_BIAS:
        last = (number == R * S * C) & (out < OUT)
        w += tl.load(bias + client * OUT + out + number * 0, last, other=0.0)
    w = w.to(x.dtype.element_ty)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < pixels
    image = client * batch + at // (DOWN * ACROSS)
    row, column = at // ACROSS % DOWN * SIZE, at % ACROSS * SIZE
    rows = _windows(x, image, row, column, inside, H, W, C, R, S, TOP, LEFT, K)
    top = tl.dot(rows, w, input_precision=PRECISION)
    first = tl.zeros((BLOCK, N), tl.int32)
    for k in tl.static_range(1, SIZE * SIZE):
        y, z = row + k // SIZE, column + k % SIZE
        rows = _windows(x, image, y, z, inside, H, W, C, R, S, TOP, LEFT, K)
        other = tl.dot(rows, w, input_precision=PRECISION)
        first = tl.where(other > top, k, first)
        top = tl.where(other > top, other, top)
    first = tl.where(top <= 0, SIZE * SIZE, first)  # nobody's, since ReLU lets nothing through
    top = tl.where(top < 0, 0.0, top)
    there = (client * pixels + at)[:, None] * OUT + out
    valid = inside[:, None] & (out < OUT)
    tl.store(best + there, top, valid)
    tl.store(which + there, first.to(tl.uint8), valid)


@triton.jit
def _backward(
    gradient, which, x, sums, batch, parts,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    TOP: tl.constexpr, LEFT: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
    OUT: tl.constexpr, SIZE: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    part, client, pixels = tl.program_id(0), tl.program_id(1), batch * DOWN * ACROSS
    number, out = tl.arange(0, K)[:, None], tl.arange(0, N)[None, :]
    total = tl.zeros((K, N), tl.float32)
    for start in range(part * BLOCK, pixels, parts * BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < pixels
        image = client * batch + at // (DOWN * ACROSS)
        row, column = at // ACROSS % DOWN * SIZE, at % ACROSS * SIZE
        there = (client * pixels + at)[:, None] * OUT + out
        valid = inside[:, None] & (out < OUT)
        value = tl.load(gradient + there, valid, other=0.0).to(tl.float32)
        first = tl.load(which + there, valid, other=SIZE * SIZE).to(tl.int32)
        for k in tl.static_range(SIZE * SIZE):
            y, z = row + k // SIZE, column + k % SIZE
            rows = _windows(x, image, y, z, inside, H, W, C, R, S, TOP, LEFT, K)
            here = tl.where(first == k, value, 0.0).to(x.dtype.element_ty)
            total += tl.dot(tl.trans(rows), here, input_precision=PRECISION)
    tl.store(sums + ((client * parts + part) * K + number) * N + out, total)


def convolve_and_pool(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int], size: int
) -> tuple[Tensor, Tensor]:
    """Images `(num · batch, height, width, in)`, weights `(num, out, in, rows, columns)`.

    Gives the pooled images after ReLU, and which of its pixels each maximum was.
    """
    num, num_out, *_ = weight.shape
    sizes, batch = _sizes(x, weight, padding, size), len(x) // len(weight)
    down, across = sizes[7:9]
    best = x.new_empty(len(x), down, across, num_out)
    which = torch.empty_like(best, dtype=torch.uint8)
    grid = (triton.cdiv(batch * down * across, BLOCK), num)
    last = weight if bias is None else bias
    has_bias = bias is not None
    _forward[grid](x, weight, last, best, which, batch, *sizes, has_bias, _precision(), BLOCK)
    return best, which


def gradients(
    gradient: Tensor, which: Tensor, x: Tensor, like: Tensor, padding: tuple[int, int], size: int
) -> Tensor:
    """Of the weights, `(num, rows · columns · in + 1, out)`; the last row is that of the bias."""
    num, num_out, *_ = like.shape
    sizes, batch = _sizes(x, like, padding, size), len(x) // len(like)
    down, across, *_, padded, wide = sizes[7:]
    parts = min(triton.cdiv(PROGRAMS, num), triton.cdiv(batch * down * across, BLOCK))
    sums = torch.empty(num, parts, padded, wide, device=x.device)
    _backward[(parts, num)](gradient, which, x, sums, batch, parts, *sizes, _precision(), BLOCK)
    return sums.sum(dim=1)[:, : like[0, 0].numel() + 1, :num_out]


def _sizes(x: Tensor, weight: Tensor, padding: tuple[int, int], size: int) -> tuple[int, ...]:
    """What the kernels are compiled for."""
    _, num_out, channels, rows, columns = weight.shape
    _, high, wide, _ = x.shape
    down = (high + 2 * padding[0] - rows + 1) // size
    across = (wide + 2 * padding[1] - columns + 1) // size
    padded = [max(16, triton.next_power_of_2(n)) for n in (rows * columns * channels + 1, num_out)]
    return (high, wide, channels, rows, columns, *padding, down, across, num_out, size, *padded)


def _precision() -> str:
    """Of float32; other types have but one."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
