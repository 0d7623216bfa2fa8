"""Convolution, pooling and ReLU in one pass, against torch's own one after the other.

The kernels run on a GPU, or by `TRITON_INTERPRET=1` where Triton is installed.
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sofa_fl.engine.stacking import StackedConv2d, StackedFirst, stack_layers
from sofa_fl.engine.windows import FirstLayer

IS_INTERPRETED = (
    os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter has no bf16
kernels = pytest.mark.skipif(
    not (torch.cuda.is_available() or IS_INTERPRETED), reason="there is no GPU here"
)
# Clients, batch, channels, height, width; outputs, kernel, padding, pooling.
CASES = {
    "the paper's": ((3, 5, 1, 28, 28), (32, (3, 3), (1, 1), 2)),
    "odd sizes": ((2, 3, 1, 9, 7), (5, (3, 3), (1, 1), 2)),
    "three channels": ((2, 2, 3, 8, 9), (20, (2, 4), (0, 1), 3)),
    "large windows": ((1, 40, 1, 12, 12), (6, (5, 5), (0, 0), 2)),
    "pools of one": ((2, 3, 1, 6, 6), (4, (3, 3), (0, 0), 1)),
}


def draws(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)


@kernels
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_it_is_what_torch_does_in_three_steps(
    case: str, has_bias: bool, dtype: torch.dtype
) -> None:
    (num, batch, channels, high, wide), (out, kernel, padding, size) = CASES[case]
    # Of half precision, a product is exact in float32, so that a maximum is the same pixel's.
    x = draws(num * batch, channels, high, wide).to(dtype)
    weight = draws(num, out, channels, *kernel).to(dtype).float().requires_grad_()
    bias = draws(num, out).to(dtype).float().requires_grad_() if has_bias else None
    inputs = [tensor for tensor in (weight, bias) if tensor is not None]
    each = [
        functional.conv2d(
            x[i * batch : (i + 1) * batch].float(),
            weight[i],
            None if bias is None else bias[i],
            padding=padding,
        )
        for i in range(num)
    ]
    expected = functional.max_pool2d(torch.cat(each), size).relu()
    found = FirstLayer.apply(x.permute(0, 2, 3, 1), weight, bias, padding, size)  # type: ignore[no-untyped-call]
    assert found.dtype == dtype
    close = 1e-4 if dtype == torch.float32 else 1e-2
    found = found.permute(0, 3, 1, 2)
    torch.testing.assert_close(found.float(), expected, rtol=close, atol=close)
    gradient = draws(*expected.shape).to(dtype)
    mine = torch.autograd.grad(found, inputs, gradient)
    torchs = torch.autograd.grad(expected, inputs, gradient.float())
    for a, b in zip(mine, torchs, strict=True):
        assert a.shape == b.shape
        assert float((a - b).norm()) <= 1e-3 * float(b.norm())


@kernels
def test_what_is_not_positive_has_no_gradient_and_what_is_no_number_stays() -> None:
    x = torch.zeros(1, 2, 2, 1, device=DEVICE)
    weight = torch.ones(1, 1, 1, 1, 1, device=DEVICE, requires_grad=True)
    bias = torch.zeros(1, 1, device=DEVICE, requires_grad=True)
    out = FirstLayer.apply(x, weight, bias, (0, 0), 2)  # type: ignore[no-untyped-call]
    out.sum().backward()
    assert bias.grad is not None
    assert not bias.grad.any()
    wrong = torch.full_like(x, torch.nan)
    assert FirstLayer.apply(wrong, weight, bias, (0, 0), 2).isnan().all()  # type: ignore[no-untyped-call]


def first(*after: nn.Module, channels: int = 1, out: int = 32) -> nn.Module:
    return stack_layers(nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), *after), 2)


def test_only_small_convolutions_with_both_are_joined() -> None:
    pool, relu = nn.MaxPool2d(2), nn.ReLU()
    for after in ((pool, relu), (relu, pool), (nn.Identity(), pool, relu, nn.Flatten())):
        joined = first(*after)
        assert isinstance(joined, nn.Sequential)
        assert isinstance(joined[0], StackedFirst)
        names = [name for name, _ in joined.named_parameters()]
        assert names == ["0.weight", "0.bias"]
        kinds = [type(module) for module in joined][1:]
        assert set(kinds) <= {nn.Identity, nn.Flatten}
    others = (
        first(pool),
        first(relu, nn.Flatten()),
        first(nn.MaxPool2d(2, stride=1), relu),
        first(nn.BatchNorm2d(32), pool, relu),
        first(pool, relu, channels=32),
        first(pool, relu, out=256),
    )
    for other in others:
        assert isinstance(other, nn.Sequential)
        assert type(other[0]) is StackedConv2d


@pytest.mark.parametrize("needs_gradient", [True, False])
def test_joined_layers_do_what_they_did(needs_gradient: bool) -> None:
    """On a CPU one after the other, and everywhere if the images need a gradient."""
    for after in ((nn.MaxPool2d(2), nn.ReLU()), (nn.ReLU(), nn.MaxPool2d(2))):
        layers = [nn.Conv2d(1, 4, 3, padding=1), *after]
        stack = stack_layers(nn.Sequential(*layers), 2)
        weights, biases = draws(2, 4, 1, 3, 3).cpu(), draws(2, 4).cpu()
        stack.load_state_dict({"0.weight": weights, "0.bias": biases})
        x = draws(6, 1, 8, 8).cpu().requires_grad_(needs_gradient)
        found = stack(x)
        parts = [
            functional.conv2d(x[3 * i : 3 * i + 3], weights[i], biases[i], padding=1)
            for i in range(2)
        ]
        expected = functional.max_pool2d(torch.cat(parts), 2).relu()
        torch.testing.assert_close(found, expected)
        if needs_gradient:
            (a,) = torch.autograd.grad(found.square().sum(), x, retain_graph=True)
            (b,) = torch.autograd.grad(expected.square().sum(), x)
            torch.testing.assert_close(a, b)
