"""Functions of torch in a form that `torch.func` maps over clients well, by the function.

Mapped as they are, convolutions become grouped ones, which GPUs run slowly, and norms copy or fail.
Here a layer with weights of every client is one batched matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.nn import functional

from sofa_fl.engine.attention import ATTENTION
from sofa_fl.engine.drawing import DRAWING
from sofa_fl.engine.draws import Draws, Replacement
from sofa_fl.engine.norms import NORMS
from sofa_fl.engine.recurrent import RECURRENT
from sofa_fl.engine.windows import Convolve, MaxPool

Rule = Callable[..., Tensor]  # on tensors whose first dimension is that of the clients


class _Mapped(torch.autograd.Function):
    """A function of tensors that, mapped over clients, is `rule` on all of them at once."""

    @staticmethod
    def forward(rule: Rule, *args: Any) -> Tensor:
        raise NotImplementedError("a layer is given nothing that differs from client to client")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing: the rule has gradients of its own."""

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], rule: Rule, *args: Any) -> Any:
        each = [
            _rows(arg, dim, info.batch_size) if isinstance(arg, Tensor) else arg
            for arg, dim in zip(args, in_dims[1:])
        ]
        return rule(*each), 0


def _rows(tensor: Tensor, dim: int | None, num: int) -> Tensor:
    return tensor.expand(num, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _is_shared(weight: Tensor) -> bool:
    """Whether all clients have one weight, as the frozen ones are: torch maps these well itself."""
    return not is_batchedtensor(weight)


def apart(x: Tensor, num: int) -> Tensor:
    """`(num · batch, …)` as `(num, batch, …)`."""
    return x.view(num, -1, *x.shape[1:])


def _apply(rule: Rule, *args: Any) -> Tensor:
    out: Tensor = _Mapped.apply(rule, *args)  # type: ignore[no-untyped-call]
    return out


class Product(torch.autograd.Function):
    """`(num, batch, in)` with `(num, out, in)`; the weights' gradient comes as they lie.

    They are multiplied in the inputs' type. Their gradient has their own, and is summed in it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.kind, weight = weight.dtype, weight.to(x.dtype)
        ctx.save_for_backward(x, weight)
        return torch.bmm(x, weight.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        d_x = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return d_x, None
        if x.is_cuda and x.dtype != ctx.kind and hasattr(torch.ops.aten.bmm, "dtype"):
            return d_x, torch.bmm(gradient.transpose(1, 2), x, out_dtype=ctx.kind)
        return d_x, torch.bmm(gradient.transpose(1, 2), x).to(ctx.kind)


def _linear_rule(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    each = x.reshape(len(x), -1, x.shape[-1])
    out: Tensor = Product.apply(each, weight)  # type: ignore[no-untyped-call]
    if bias is not None:
        out = out + bias[:, None]
    return out.view(*x.shape[:-1], out.shape[-1])


def linear(draws: Draws, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if _is_shared(weight):
        return NotImplemented
    return _apply(_linear_rule, input, weight, bias)


def _conv_rule(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, ...],
    dilation: tuple[int, int],
) -> Tensor:
    num = len(x)
    last = x.flatten(0, 1).permute(0, 2, 3, 1)  # channels last
    if any(padding):
        last = functional.pad(last, (0, 0, *padding))
    if weight.shape[3:] == (1, 1):
        pixels = last[:, :: stride[0], :: stride[1]]
        out = _linear_rule(apart(pixels, num), weight.flatten(2), bias).flatten(0, 1)
    else:
        out = Convolve.apply(last, weight.permute(0, 3, 4, 2, 1), bias, stride, dilation)  # type: ignore[no-untyped-call]
    return apart(out.permute(0, 3, 1, 2), num)


def conv2d(
    draws: Draws,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    if groups != 1 or input.ndim != 4 or _is_shared(weight):
        return NotImplemented
    stride, dilation = _pair(stride), _pair(dilation)
    if isinstance(padding, str):
        sizes = zip(weight.shape[:1:-1], dilation[::-1])  # the width comes first
        spans = [d * (size - 1) if padding == "same" else 0 for size, d in sizes]
        sides = [side for span in spans for side in (span // 2, span - span // 2)]
    else:
        top, left = _pair(padding)
        sides = [left, left, top, top]
    return _apply(_conv_rule, input, weight, bias, stride, tuple(sides), dilation)


def conv1d(
    draws: Draws,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """As a convolution of images of one row."""
    if groups != 1 or input.ndim != 3 or _is_shared(weight):
        return NotImplemented
    steps = [(1, _pair(step)[0]) for step in (stride, dilation)]
    sides = padding if isinstance(padding, str) else (0, _pair(padding)[0])
    given = (input.unsqueeze(2), weight.unsqueeze(2), bias, steps[0], sides, steps[1])
    return conv2d(draws, *given).squeeze(2)


def _pool_rule(x: Tensor, size: int) -> Tensor:
    out: Tensor = MaxPool.apply(x.flatten(0, 1).permute(0, 2, 3, 1), size)  # type: ignore[no-untyped-call]
    return apart(out.permute(0, 3, 1, 2), len(x))


def max_pool2d(
    draws: Draws,
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    size = _pair(kernel_size)
    is_tiling = (
        size[0] == size[1] <= 15  # of which one byte says where the maximum was
        and (not stride or _pair(stride) == size)
        and (_pair(padding), _pair(dilation)) == ((0, 0), (1, 1))
    )
    if not is_tiling or ceil_mode or return_indices or input.ndim != 4:
        return NotImplemented
    return _apply(_pool_rule, input, size[0])


def _embedding_rule(rows: Tensor, weight: Tensor) -> Tensor:
    first = torch.arange(len(rows), device=rows.device) * weight.shape[1]
    first = first.view(-1, *[1] * (rows.ndim - 1))
    return torch.embedding(weight.flatten(0, 1), rows + first)


def embedding(
    draws: Draws,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if max_norm is not None or scale_grad_by_freq or _is_shared(weight):
        return NotImplemented
    out = _apply(_embedding_rule, input, weight)
    if padding_idx is None:
        return out
    # Torch's own rule forgets that every client has a row that is not trained.
    is_padding = (input == padding_idx % len(weight)).unsqueeze(-1)
    return torch.where(is_padding, out.detach(), out)


def embedding_bag(draws: Draws, *args: Any, **options: Any) -> Any:
    """As torch has it, with a dense gradient."""
    if len(args) > 7 or not options.get("sparse"):
        return NotImplemented
    return functional.embedding_bag(*args, **{**options, "sparse": False})


def adaptive_avg_pool2d(draws: Draws, input: Tensor, output_size: Any) -> Any:
    """To one pixel, which is what most networks ask for; the rest is torch's."""
    sizes = (output_size,) if isinstance(output_size, int) else output_size
    if any(size != 1 for size in sizes):
        return NotImplemented
    return input.mean(dim=(-2, -1), keepdim=True)


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


MAPPED: Mapping[Any, Replacement] = {
    **DRAWING,
    **ATTENTION,
    **NORMS,
    **RECURRENT,
    functional.linear: linear,
    functional.conv1d: conv1d,
    functional.conv2d: conv2d,
    functional.max_pool2d: max_pool2d,
    functional.embedding: embedding,
    functional.embedding_bag: embedding_bag,
    functional.adaptive_avg_pool2d: adaptive_avg_pool2d,
}
