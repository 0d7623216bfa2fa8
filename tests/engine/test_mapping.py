"""Modules mapped over clients do what each does alone, forwards and backwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sofa_fl.engine.draws import Draws, Rewriting
from sofa_fl.engine.mapping import MAPPED

NUM, BATCH = 3, 4
Module = Callable[[], nn.Module]


def image(channels: int = 4) -> tuple[int, ...]:
    return (BATCH, channels, 9, 8)


class Attending(nn.Module):
    """Attention with whatever torch offers."""

    def __init__(self, how: str, **options: Any) -> None:
        super().__init__()
        self.how, self.layer = how, nn.MultiheadAttention(8, 2, **options)

    def forward(self, x: Tensor) -> Any:
        length, batch = x.shape[:2]
        hidden = torch.arange(length)[:, None] < torch.arange(length)
        match self.how:
            case "causal":
                return self.layer(x, x, x, attn_mask=hidden, is_causal=True, need_weights=False)[0]
            case "padding":
                padding = torch.zeros(batch, length, dtype=torch.bool)
                padding[:, -1] = True
                return self.layer(x, x, x, key_padding_mask=padding, attn_mask=hidden)
            case "by head":
                mask = torch.linspace(-1, 1, 2 * batch * length**2, dtype=x.dtype)
                return self.layer(x, x, x, attn_mask=mask.view(2 * batch, length, length))
            case "by width":
                return self.layer(x, x[..., :6], x[..., :5], average_attn_weights=False)
            case "one":
                return self.layer(x[:, 0], x[:, 0], x[:, 0])
        return self.layer(x, x, x)


class Scaled(nn.Module):
    """`scaled_dot_product_attention` on heads of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options, self.query = options, nn.Linear(8, 8)
        self.key = nn.Linear(8, 4 if options.get("enable_gqa") else 8)

    def forward(self, x: Tensor) -> Tensor:
        q = self.query(x).view(*x.shape[:2], 4, 2).transpose(1, 2)
        k = self.key(x).view(*x.shape[:2], -1, 2).transpose(1, 2)
        return functional.scaled_dot_product_attention(q, k, k, **self.options)


MODULES: dict[str, tuple[Module, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 3), (BATCH, 2, 5)),
    "linear, no bias": (lambda: nn.Linear(5, 3, bias=False), (BATCH, 5)),
    "conv": (lambda: nn.Conv2d(4, 6, 3, padding=(1, 2)), image()),
    "conv, same": (lambda: nn.Conv2d(4, 6, (3, 4), padding="same", dilation=2), image()),
    "conv, stride": (lambda: nn.Conv2d(4, 6, 3, stride=(2, 3), bias=False), image()),
    "conv, pixel": (lambda: nn.Conv2d(4, 6, 1, stride=2), image()),
    "conv, circular": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), image()),
    "conv, depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), image()),
    "conv, one image": (lambda: nn.Conv2d(4, 6, 3), (4, 9, 8)),
    "conv 1D": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2), (BATCH, 4, 9)),
    "conv 1D, same": (lambda: nn.Conv1d(4, 6, 4, padding="same"), (BATCH, 4, 9)),
    "conv 3D": (lambda: nn.Conv3d(2, 3, 2), (BATCH, 2, 4, 4, 4)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), image()),
    "pool": (lambda: nn.Sequential(nn.Conv2d(4, 3, 1), nn.MaxPool2d(2)), image()),
    "pool, overlapping": (lambda: nn.Sequential(nn.Conv2d(4, 3, 1), nn.MaxPool2d(3, 2)), image()),
    "average": (lambda: nn.Sequential(nn.Conv2d(4, 3, 1), nn.AdaptiveAvgPool2d(1)), image()),
    "average, 3": (lambda: nn.Sequential(nn.Conv2d(4, 3, 1), nn.AdaptiveAvgPool2d(3)), image()),
    "BatchNorm": (lambda: nn.BatchNorm2d(4), image()),
    "BatchNorm, plain": (lambda: nn.BatchNorm1d(5, affine=False), (BATCH, 5)),
    "BatchNorm, no statistics": (
        lambda: nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5, track_running_stats=False)),
        (BATCH, 5),
    ),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), image()),
    "GroupNorm, plain": (
        lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.GroupNorm(4, 4, affine=False)),
        image(),
    ),
    "InstanceNorm": (lambda: nn.InstanceNorm2d(4, affine=True), image()),
    "LayerNorm": (lambda: nn.LayerNorm((9, 8)), image()),
    "RMSNorm": (lambda: nn.RMSNorm(8), image()),
    "GRU": (lambda: nn.GRU(5, 3, 2, batch_first=True, bidirectional=True), (BATCH, 6, 5)),
    "GRU, no bias": (lambda: nn.GRU(5, 3, bias=False), (6, BATCH, 5)),
    "LSTM": (lambda: nn.LSTM(5, 3, 2, bidirectional=True), (6, BATCH, 5)),
    "LSTM, projection": (lambda: nn.LSTM(5, 4, 2, proj_size=2, batch_first=True), (BATCH, 6, 5)),
    "LSTM, no bias": (lambda: nn.LSTM(5, 4, proj_size=2, bias=False), (6, BATCH, 5)),
    "RNN": (lambda: nn.RNN(5, 3), (6, 5)),
    "RNN, ReLU": (lambda: nn.RNN(5, 3, 2, nonlinearity="relu"), (6, BATCH, 5)),
    "attention": (lambda: Attending("plain"), (6, BATCH, 8)),
    "attention, causal": (lambda: Attending("causal"), (6, BATCH, 8)),
    "attention, padding": (lambda: Attending("padding", bias=False), (6, BATCH, 8)),
    "attention, by head": (lambda: Attending("by head"), (6, BATCH, 8)),
    "attention, by width": (lambda: Attending("by width", kdim=6, vdim=5), (6, BATCH, 8)),
    "attention, more keys": (
        lambda: Attending("by head", add_bias_kv=True, add_zero_attn=True),
        (6, BATCH, 8),
    ),
    "attention, one": (lambda: Attending("one"), (6, BATCH, 8)),
    "scaled": (lambda: Scaled(is_causal=True, scale=0.3), (BATCH, 6, 8)),
    "scaled, masked": (lambda: Scaled(attn_mask=torch.ones(6, 6).tril() > 0), (BATCH, 6, 8)),
    "scaled, groups": (lambda: Scaled(enable_gqa=True), (BATCH, 6, 8)),
    "Transformer": (
        lambda: nn.TransformerDecoderLayer(8, 2, 12, dropout=0, batch_first=True),
        (BATCH, 6, 8),
    ),
}  # fmt: skip


def tensors(out: Any) -> list[Tensor]:
    """All tensors of an output, however nested."""
    if isinstance(out, Tensor):
        return [out]
    return [tensor for part in out or () for tensor in tensors(part)]


def call(module: nn.Module, x: Tensor) -> Any:
    return module(x, x) if isinstance(module, nn.TransformerDecoderLayer) else module(x)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_a_module_is_mapped_as_it_is(name: str, training: bool) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    modules = [make().double().train(training) for _ in range(NUM)]
    for module in modules:  # biases and scales that are not all the same
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.5)
    weights, buffers = torch.func.stack_module_state(modules)
    buffers = {k: b.clone() for k, b in buffers.items() if b.is_floating_point()}
    x = torch.randn(NUM, *shape, dtype=torch.float64, requires_grad=True)
    skeleton = make().double().train(training)

    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = skeleton

        def forward(self, x: Tensor) -> Any:
            return call(self.inner, x)

    def one(own: dict[str, Tensor], given: Tensor) -> Any:
        with Rewriting(MAPPED, Draws(None)):
            named = {f"inner.{key}": value for key, value in own.items()}
            return tuple(tensors(torch.func.functional_call(Called(), named, (given,))))

    stacked = torch.func.vmap(one)({**weights, **buffers}, x)
    alone = [tensors(call(module, x[i])) for i, module in enumerate(modules)]
    for mine, *same in zip(stacked, *alone, strict=True):
        close(mine, torch.stack(same))
    for key, buffer in buffers.items():
        close(buffer, torch.stack([module.get_buffer(key) for module in modules]))
    grads = torch.autograd.grad(total(stacked), [x, *weights.values()], allow_unused=True)
    own = [parameter for module in modules for parameter in module.parameters()]
    outs = [tensor for out in alone for tensor in out]
    torchs = torch.autograd.grad(total(outs), [x, *own], allow_unused=True)
    close(grads[0], torchs[0])
    for number, gradient in enumerate(grads[1:]):
        close(gradient, torch.stack(torchs[1 + number :: len(weights)]))


def total(outs: Sequence[Tensor]) -> Tensor:
    """A number that depends on every output, and differently on each."""
    each = [(out * torch.linspace(0, 1, out.shape[-1])).square().sum() for out in outs]
    return torch.stack(each).sum()


def close(mine: Tensor, same: Tensor) -> None:
    torch.testing.assert_close(mine, same.to(mine.dtype), rtol=1e-5, atol=1e-5)


def test_an_embedding_does_not_train_its_padding() -> None:
    weight = torch.randn(NUM, 5, 2, requires_grad=True)
    rows = torch.tensor([[0, 1, 4], [4, 0, 0], [2, 2, 3]])

    def one(own: Tensor, given: Tensor) -> Tensor:
        with Rewriting(MAPPED, Draws(None)):
            return functional.embedding(given, own, padding_idx=-1).square()

    stacked = torch.func.vmap(one)(weight, rows)
    alone = torch.stack(
        [functional.embedding(r, w, padding_idx=-1).square() for r, w in zip(rows, weight)]
    )
    assert torch.equal(stacked, alone)
    (mine,), (same,) = (torch.autograd.grad(out.sum(), weight) for out in (stacked, alone))
    assert torch.equal(mine, same)
    assert math.isclose(float(mine[:, 4].abs().sum()), 0)
