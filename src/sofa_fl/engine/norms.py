"""Norms by plain formulas, which `torch.func` maps over clients as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sofa_fl.engine.draws import Draws, Replacement

ONE_VALUE = "BatchNorm needs more than one value per channel to train; use larger batches"


def batch_norm(
    draws: Draws,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    over = [0, *range(2, input.ndim)]
    count = input.numel() // input.shape[1]
    x = input.float()
    if training:
        if count == 1:
            raise ValueError(ONE_VALUE)
        var, mean = torch.var_mean(x, over, correction=0)
        if running_mean is not None and running_var is not None:
            with torch.no_grad():
                running_mean.mul_(1 - momentum).add_(mean * momentum)
                running_var.mul_(1 - momentum).add_(var * (momentum * count / (count - 1)))
    else:
        assert running_mean is not None
        assert running_var is not None
        mean, var = running_mean, running_var
    shape = (-1,) + (1,) * (input.ndim - 2)
    scale = torch.rsqrt(var + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return (x * scale.view(shape) + shift.view(shape)).to(input.dtype)


def group_norm(
    draws: Draws,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    each = input.reshape(len(input), num_groups, -1)
    out = functional.layer_norm(each, each.shape[2:], eps=eps).view(input.shape)
    shape = (-1,) + (1,) * (input.ndim - 2)
    out = out if weight is None else out * weight.view(shape)
    return out if bias is None else out + bias.view(shape)


def instance_norm(
    draws: Draws,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if running_mean is not None or not use_input_stats:
        return NotImplemented
    return group_norm(draws, input, input.shape[1], weight, bias, eps)


NORMS: dict[Any, Replacement] = {
    functional.batch_norm: batch_norm,
    functional.group_norm: group_norm,
    functional.instance_norm: instance_norm,
}
