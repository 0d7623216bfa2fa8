"""Patches, pooling and their reverses, against torch's own convolution and pooling."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sofa_fl.engine import windows
from sofa_fl.engine.windows import Convolve, MaxPool
from tests.engine.cases import DEVICES


def last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


@pytest.mark.parametrize(
    ("stride", "dilation"),
    [((2, 2), (1, 1)), ((1, 3), (1, 1)), ((1, 1), (2, 1)), ((3, 2), (1, 2))],
)
def test_strides_and_dilations(stride: tuple[int, int], dilation: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    x, weight, bias = draw(4, 3, 9, 10), draw(2, 5, 3, 3, 2), draw(2, 5)
    rows = weight.permute(0, 3, 4, 2, 1)
    stacked = Convolve.apply(last(x), rows, bias, stride, dilation)  # type: ignore[no-untyped-call]
    each = [
        functional.conv2d(x[2 * i : 2 * i + 2], weight[i], bias[i], stride, 0, dilation)
        for i in range(2)
    ]
    expected = last(torch.cat(each))
    torch.testing.assert_close(stacked, expected)
    gradient = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    mine = torch.autograd.grad(stacked, [x, weight, bias], gradient)
    torch.testing.assert_close(mine, torch.autograd.grad(expected, [x, weight, bias], gradient))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [(3, 3), (1, 2), (2, 4)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_stacked_convolution_is_one_for_each(
    device: str, channels: int, kernel: tuple[int, int], has_bias: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    num, batch, out = 3, 4, 5

    def draw(*shape: int) -> Tensor:
        numbers = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return numbers.to(device, torch.float64 if device == "cpu" else torch.float32)

    x = draw(num * batch, channels, 6, 7).requires_grad_()
    weight = draw(num, out, channels, *kernel).requires_grad_()
    bias = draw(num, out).requires_grad_() if has_bias else None
    inputs = [t for t in (x, weight, bias) if t is not None]
    stacked = Convolve.apply(last(x), weight.permute(0, 3, 4, 2, 1), bias)  # type: ignore[no-untyped-call]
    each = [
        functional.conv2d(
            x[i * batch : (i + 1) * batch], weight[i], None if bias is None else bias[i]
        )
        for i in range(num)
    ]
    expected = last(torch.cat(each))
    assert torch.allclose(stacked, expected, rtol=1e-4, atol=1e-4)
    gradient = draw(*expected.shape)
    mine = torch.autograd.grad(stacked, inputs, gradient)
    torchs = torch.autograd.grad(expected, inputs, gradient)
    for a, b in zip(mine, torchs, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("shape", [(6, 6), (7, 8), (8, 5)])
def test_pooling_is_torchs_own_with_ties_too(
    device: str, size: int, shape: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 3, (4, 5, *shape), generator=generator).float().to(device)
    x.requires_grad_()
    mine = MaxPool.apply(last(x), size)  # type: ignore[no-untyped-call]
    expected = functional.max_pool2d(x, size)
    assert torch.equal(mine, last(expected))
    gradient = torch.randn(expected.shape, generator=generator).to(device)
    (a,) = torch.autograd.grad(mine, x, last(gradient))
    (b,) = torch.autograd.grad(expected, x, gradient)
    assert torch.equal(a, b)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_move_the_same_bits_as_the_formulas(dtype: torch.dtype) -> None:
    x = torch.randn(33, 9, 11, 3, device="cuda").to(dtype)
    own = windows.kernels(x)
    assert own is not windows
    for width in (27, 28, 32):
        rows = windows.patches(x, 3, 3, width)
        assert torch.equal(own.patches(x, 3, 3, width), rows)
        sums = windows.unpatch(rows.float(), 3, 3, 3)
        assert torch.allclose(own.unpatch(rows, 3, 3, 3).float(), sums, rtol=1e-2, atol=1e-2)
    for a, b in zip(own.pool(x, 2), windows.pool(x, 2), strict=True):
        assert torch.equal(a, b)
    best, which = windows.pool(x, 2)
    assert torch.equal(own.unpool(best, which, 2, 9, 11), windows.unpool(best, which, 2, 9, 11))
