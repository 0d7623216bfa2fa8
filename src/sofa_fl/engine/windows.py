"""Convolution and max-pooling over stacked images, channels last: `(images, height, width, in)`.

Data movement is written as plain formulas. On a GPU kernels of our own take their place: one
pass over memory each, where torch's take two to eight times as long (`benchmarks/README.md`).
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Pair = tuple[int, int]


def patches(
    x: Tensor, rows: int, columns: int, width: int, stride: Pair = (1, 1), dilation: Pair = (1, 1)
) -> Tensor:
    """Every window of `x` as a row of `width` numbers: its pixels, a one, and zeros.

    `width` is at least the number of pixels; there is a one where there is room for it.
    """
    down, across = dilation
    windows = x.unfold(1, (rows - 1) * down + 1, stride[0])
    windows = windows.unfold(2, (columns - 1) * across + 1, stride[1])
    windows = windows[..., ::down, ::across]  # (images, height, width, in, rows, columns)
    flat = windows.permute(0, 1, 2, 4, 5, 3).flatten(3)
    room = width - flat.shape[3]
    if not room:
        return flat.contiguous()
    out = functional.pad(flat, (0, room))
    out[..., flat.shape[3]] = 1
    return out


def unpatch(
    windows: Tensor,
    rows: int,
    columns: int,
    channels: int,
    size: Pair | None = None,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
) -> Tensor:
    """The sum, for every pixel, over the windows it was in: the reverse of `patches`.

    `size` is the height and width of the images, if windows do not cover all of them.
    """
    pixels = windows[..., : rows * columns * channels]
    each = pixels.reshape(*pixels.shape[:3], rows, columns, channels)
    num, height, width = pixels.shape[:3]
    total = windows.new_zeros(num, *(size or (height + rows - 1, width + columns - 1)), channels)
    for i in range(rows):
        for j in range(columns):
            top, left = i * dilation[0], j * dilation[1]
            down = slice(top, top + (height - 1) * stride[0] + 1, stride[0])
            across = slice(left, left + (width - 1) * stride[1] + 1, stride[1])
            total[:, down, across] += each[:, :, :, i, j]
    return total


def pool(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The maximum of every `size` by `size` tile, and which of its pixels it was, the first."""
    height, width = x.shape[1] // size * size, x.shape[2] // size * size
    best = x[:, 0:height:size, 0:width:size]
    which = torch.zeros_like(best, dtype=torch.uint8)
    for k in range(1, size * size):
        other = x[:, k // size : height : size, k % size : width : size]
        which = torch.where(other > best, k, which)
        best = torch.maximum(best, other)
    return best.contiguous(), which.contiguous()


def unpool(gradient: Tensor, which: Tensor, size: int, height: int, width: int) -> Tensor:
    """`gradient` where the maxima were, zero elsewhere, on images of this height and width."""
    num, down, across, channels = gradient.shape
    out = gradient.new_zeros(num, height, width, channels)
    for k in range(size * size):
        tiles = out[:, k // size : down * size : size, k % size : across * size : size]
        tiles.copy_(torch.where(which == k, gradient, 0.0))
    return out


class Convolve(torch.autograd.Function):
    """`(num · batch, height, width, in)` with `(num, rows, columns, in, out)`: one product each.

    The bias is added by the product where there is room for it: rows of a length that is no
    multiple of four (of eight in bf16) are lengthened for the sake of the processor anyhow.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: Pair = (1, 1),
        dilation: Pair = (1, 1),
    ) -> Tensor:
        num, rows, columns, _, num_out = weight.shape
        flat = weight.reshape(num, -1, num_out)
        room = -flat.shape[1] % max(4, 16 // x.element_size())  # 16 bytes, on a GPU
        if room:
            last = flat.new_zeros(num, 1, num_out) if bias is None else bias[:, None]
            flat = functional.pad(torch.cat([flat, last], dim=1), (0, 0, 0, room - 1))
        ctx.steps = (stride, dilation)
        ctx.size = (x.shape[1], x.shape[2])
        if ctx.steps == ((1, 1), (1, 1)):
            windows = kernels(x).patches(x, rows, columns, flat.shape[1])
        else:
            windows = patches(x, rows, columns, flat.shape[1], stride, dilation)
        ctx.save_for_backward(windows, flat)
        ctx.shape, ctx.has_bias = weight.shape, bias is not None
        product = torch.bmm(windows.view(num, -1, flat.shape[1]), flat)
        if bias is not None and not room:
            product += bias[:, None]
        return product.view(*windows.shape[:3], num_out)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        windows, flat = ctx.saved_tensors
        num, width, num_out = flat.shape
        gradient = gradient.contiguous()
        # A long sum for few weights keeps few processors busy: sum it in parts.
        length = gradient.numel() // (num * num_out)
        parts = next(k for k in (16, 12, 10, 9, 8, 6, 5, 4, 3, 2, 1) if length % k == 0)
        cut = (num * parts, length // parts)
        d_flat = torch.bmm(windows.view(*cut, width).transpose(1, 2), gradient.view(*cut, num_out))
        d_flat = d_flat.view(num, parts, width, num_out).sum(dim=1)
        _, rows, columns, channels, _ = ctx.shape
        size, d_x, d_bias = rows * columns * channels, None, None
        if ctx.has_bias:
            d_bias = d_flat[:, size] if size < width else gradient.view(num, -1, num_out).sum(dim=1)
        if ctx.needs_input_grad[0]:
            d_windows = torch.bmm(gradient.view(num, -1, num_out), flat.transpose(1, 2))
            d_windows = d_windows.view(*windows.shape[:3], width)
            if ctx.steps == ((1, 1), (1, 1)):
                d_x = kernels(gradient).unpatch(d_windows, rows, columns, channels)
            else:
                d_x = unpatch(d_windows, rows, columns, channels, ctx.size, *ctx.steps)
        return d_x, d_flat[:, :size].reshape(ctx.shape), d_bias, None, None


class MaxPool(torch.autograd.Function):
    """The maximum of every tile of `(images, height, width, channels)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int) -> Tensor:
        best: Tensor
        best, which = kernels(x).pool(x, size)
        ctx.save_for_backward(which)
        ctx.sizes = size, x.shape[1], x.shape[2]
        return best

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (which,) = ctx.saved_tensors
        return kernels(gradient).unpool(gradient, which, *ctx.sizes), None


class FirstLayer(torch.autograd.Function):
    """Convolution, max-pooling and ReLU of images that need no gradient, on a GPU.

    `(num · batch, height, width, in)` with `(num, out, in, rows, columns)`.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Pair, size: int
    ) -> Tensor:
        from sofa_fl.engine import first_layer

        x, weight = x.contiguous(), weight.detach().contiguous()
        out: Tensor
        out, which = first_layer.convolve_and_pool(x, weight, bias, padding, size)
        ctx.save_for_backward(x, which, weight)
        ctx.sizes, ctx.has_bias = (padding, size), bias is not None
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from sofa_fl.engine import first_layer

        x, which, weight = ctx.saved_tensors
        num, num_out, *kernel = weight.shape
        each = first_layer.gradients(gradient.contiguous(), which, x, weight, *ctx.sizes)
        d_weight = each[:, :-1].reshape(num, *kernel[1:], kernel[0], num_out)
        d_bias = each[:, -1] if ctx.has_bias else None
        return None, d_weight.permute(0, 4, 3, 1, 2), d_bias, None, None


def kernels(like: Tensor) -> Any:
    """What moves data: the formulas above, or where `like` is on a GPU kernels of our own."""
    return (gpu_kernels() if like.is_cuda else None) or sys.modules[__name__]


@cache
def gpu_kernels() -> ModuleType | None:
    """The kernels, if they compile here (Triton needs a C compiler); a small one is tried."""
    if importlib.util.find_spec("triton") is None:
        return None
    from sofa_fl.engine import kernels as own

    try:
        own.pool(torch.ones(1, 2, 2, 1, device="cuda"), 2)
    except Exception:  # whatever is missing here, it will not be there later
        return None
    return own
