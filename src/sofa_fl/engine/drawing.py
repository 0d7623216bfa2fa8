"""Torch's functions that draw at random, by the draws of a client (`draws.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sofa_fl.engine.draws import Draws, Replacement

Make = Callable[..., Any]  # takes draws and a shape, then what torch's function takes
FINEST = 1 << 24  # numbers that a uniform draw can tell apart


def dropout(
    draws: Draws,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    shape: Sequence[int] | None = None,
) -> Tensor:
    if not training or p == 0:
        return input
    scale = draws.keep(input, p, shape) * (1 / (1 - p) if p < 1 else 0.0)
    return input.mul_(scale) if inplace else input * scale


def _of_channels(num_spatial: int) -> Replacement:
    """Dropout of whole channels; without a batch the channels come first."""

    def own(
        draws: Draws,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        alone = input.ndim == num_spatial + 1 and num_spatial != 2  # as torch has it
        kept = 1 if alone else 2
        shape = [*input.shape[:kept], *[1] * (input.ndim - kept)]
        return dropout(draws, input, p, training, inplace, shape)

    return own


def _alpha_dropout(
    draws: Draws,
    input: Tensor,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    shape: Sequence[int] | None = None,
) -> Tensor:
    """Keeps mean and variance of what SELU gives: the dropped become its lowest value."""
    if not training or p == 0:
        return input
    lowest = -1.7580993408473766
    scale = ((1 - p) * (1 + p * lowest**2)) ** -0.5 if p < 1 else 0.0
    keep = draws.keep(input, p, shape)
    out = (input * keep + lowest * (1 - keep)) * scale - scale * lowest * p
    return input.copy_(out) if inplace else out


def _feature_alpha_dropout(
    draws: Draws, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    shape = [*input.shape[:2], *[1] * (input.ndim - 2)]
    return _alpha_dropout(draws, input, p, training, inplace, shape)


def _rrelu(
    draws: Draws,
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    if not training:
        return functional.leaky_relu(input, (lower + upper) / 2, inplace)
    slopes = lower + (upper - lower) * draws.uniform(input.shape)
    factors = torch.where(input >= 0, torch.ones_like(slopes), slopes).to(input.dtype)
    return input.mul_(factors) if inplace else input * factors


def _made(make: Make) -> Replacement:
    """`torch.rand` and the like; with a generator of one's own they are left as they are."""

    def own(draws: Draws, *size: Any, dtype: Any = None, **options: Any) -> Any:
        if options.get("generator") is not None or options.get("out") is not None:
            return NotImplemented
        shape = options.pop("size", size[0] if len(size) == 1 else size)
        return make(draws, [shape] if isinstance(shape, int) else list(shape)).to(dtype)

    return own


def _made_like(make: Make) -> Replacement:
    def own(draws: Draws, input: Tensor, *, dtype: Any = None, **_options: Any) -> Any:
        return make(draws, input.shape).to(dtype or input.dtype)

    return own


def _filled(make: Make, **defaults: Any) -> Replacement:
    """`Tensor.normal_` and the like; `defaults` are torch's arguments, in their order."""

    def own(draws: Draws, input: Tensor, *args: Any, generator: Any = None, **named: Any) -> Any:
        if generator is not None or not named.keys() <= defaults.keys():
            return NotImplemented
        given = {**defaults, **dict(zip(defaults, args)), **named}
        found = make(draws, input.shape, *given.values())
        return found if found is NotImplemented else input.copy_(found)

    return own


def _between(draws: Draws, shape: Sequence[int], low: float, high: float) -> Tensor:
    return low + (high - low) * draws.uniform(shape)


def _normal(draws: Draws, shape: Sequence[int], mean: Any, deviation: Any) -> Any:
    return draws.normal(shape) * deviation + mean


def _log_normal(draws: Draws, shape: Sequence[int], mean: float, deviation: float) -> Any:
    return _normal(draws, shape, mean, deviation).exp()


def _exponential(draws: Draws, shape: Sequence[int], rate: float) -> Tensor:
    return -torch.log1p(-draws.uniform(shape)) / rate


def _events(draws: Draws, shape: Sequence[int], chance: float | Tensor) -> Tensor:
    return draws.uniform(shape) < chance


def _integers(draws: Draws, shape: Sequence[int], low: int, high: int | None) -> Any:
    low, high = (0, low) if high is None else (low, high)
    if not 0 < high - low <= FINEST:
        return NotImplemented
    return low + (draws.uniform(shape) * (high - low)).long()


def _bernoulli(draws: Draws, input: Tensor, p: float | None = None, **options: Any) -> Any:
    if options:
        return NotImplemented
    return _events(draws, input.shape, input if p is None else p).to(input.dtype)


def _normal_of(draws: Draws, mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Any:
    """As `torch.normal`: mean and deviation are numbers or tensors."""
    if options.get("generator") is not None or options.get("out") is not None:
        return NotImplemented
    shapes = [each.shape for each in (mean, std) if isinstance(each, Tensor)]
    shape = torch.broadcast_shapes(*shapes) if size is None else size  # type: ignore[no-untyped-call]
    return _normal(draws, list(shape), mean, std).to(options.get("dtype"))


def _randint(draws: Draws, *args: Any, dtype: Any = None, **options: Any) -> Any:
    """As `torch.randint`: up to `high`, or from `low` up to `high`, of a size."""
    if options.get("generator") is not None or options.get("out") is not None:
        return NotImplemented
    size = options.pop("size", args[-1])
    bounds = [*(a for a in args if isinstance(a, int)), *(options.get(k) for k in ("low", "high"))]
    low, high, *_ = [bound for bound in bounds if bound is not None] + [None]
    found = _integers(draws, list(size), low, high)
    return found if found is NotImplemented else found.to(dtype or torch.int64)


def _randint_like(draws: Draws, input: Tensor, low: int, high: int | None = None, **o: Any) -> Any:
    found = _integers(draws, input.shape, low, high)
    return found if found is NotImplemented else found.to(o.get("dtype") or input.dtype)


def _randperm(draws: Draws, n: int, **options: Any) -> Any:
    if options.get("generator") is not None or options.get("out") is not None:
        return NotImplemented
    return draws.uniform([n]).argsort().to(options.get("dtype") or torch.int64)


def _multinomial(
    draws: Draws, input: Tensor, num_samples: int, replacement: bool = False, **options: Any
) -> Any:
    """The largest of logarithms with Gumbel's noise."""
    if options:
        return NotImplemented
    each = input.log()
    if replacement:
        each = each.unsqueeze(-2).expand(*input.shape[:-1], num_samples, input.shape[-1])
    noise = -torch.log(-torch.log(draws.uniform(each.shape) + 0.5 / FINEST))
    if replacement:
        return (each + noise).argmax(dim=-1)
    return (each + noise).topk(num_samples).indices


def _gumbel_softmax(
    draws: Draws,
    logits: Tensor,
    tau: float = 1,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
) -> Tensor:
    noise = -torch.log(_exponential(draws, logits.shape, 1.0) + 0.5 / FINEST)
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    first = soft.argmax(dim, keepdim=True)
    return torch.zeros_like(logits).scatter(dim, first, 1.0) - soft.detach() + soft


DRAWING: dict[Any, Replacement] = {
    functional.dropout: dropout,
    torch.dropout: dropout,
    functional.dropout1d: _of_channels(1),
    functional.dropout2d: _of_channels(2),
    functional.dropout3d: _of_channels(3),
    functional.alpha_dropout: _alpha_dropout,
    functional.feature_alpha_dropout: _feature_alpha_dropout,
    functional.rrelu: _rrelu,
    functional.gumbel_softmax: _gumbel_softmax,
    torch.rand: _made(Draws.uniform),
    torch.randn: _made(Draws.normal),
    torch.rand_like: _made_like(Draws.uniform),
    torch.randn_like: _made_like(Draws.normal),
    torch.randint: _randint,
    torch.randint_like: _randint_like,
    torch.randperm: _randperm,
    torch.normal: _normal_of,
    torch.bernoulli: _bernoulli,
    torch.multinomial: _multinomial,
    Tensor.bernoulli: _bernoulli,
    Tensor.multinomial: _multinomial,
    Tensor.bernoulli_: _filled(_events, p=0.5),
    Tensor.uniform_: _filled(_between, **{"from": 0.0, "to": 1.0}),
    Tensor.normal_: _filled(_normal, mean=0.0, std=1.0),
    Tensor.log_normal_: _filled(_log_normal, mean=1.0, std=2.0),
    Tensor.exponential_: _filled(_exponential, lambd=1.0),
    Tensor.random_: _filled(_integers, **{"from": 0, "to": None}),
}
