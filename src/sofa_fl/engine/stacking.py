"""Layers of many networks at once: each holds a row of weights per client.

A batch holds all clients' samples one after the other, so a network's own `forward` runs
unchanged: whatever has no weights does not care whose samples it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sofa_fl.engine.mapping import Product
from sofa_fl.engine.norms import ONE_VALUE
from sofa_fl.engine.windows import Convolve, FirstLayer, MaxPool, gpu_kernels


class Stacked(nn.Module):
    """A layer of `num` networks; its tensors have a first dimension of `num`."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Module, num: int) -> None:
        super().__init__()
        self.layer, self.num = (layer,), num  # in a tuple: no submodule, so no weights of its own
        for name, tensor in layer.named_parameters(recurse=False):
            self.register_parameter(name, _rows(tensor, num))
        for name, buffer in layer.named_buffers(recurse=False):
            if buffer.is_floating_point():
                self.register_buffer(name, buffer.new_empty(num, *buffer.shape))
        if isinstance(getattr(layer, "weight", None), Tensor) and "bias" not in self._parameters:
            self.bias = None

    def apart(self, x: Tensor) -> Tensor:
        """`(num · batch, …)` as `(num, batch, …)`."""
        return x.view(self.num, -1, *x.shape[1:])


class StackedLinear(Stacked):
    def forward(self, x: Tensor) -> Tensor:
        each = x.reshape(self.num, -1, x.shape[-1])
        out: Tensor = Product.apply(each, self.weight)  # type: ignore[no-untyped-call]
        if self.bias is not None:
            out = out + self.bias[:, None].to(x.dtype)
        return out.view(*x.shape[:-1], out.shape[-1])


class StackedConv2d(Stacked):
    """A convolution as one matrix product per client over its samples' patches."""

    def forward(self, x: Tensor) -> Tensor:
        (conv,) = self.layer
        assert isinstance(conv, nn.Conv2d)
        x, (top, left) = x.permute(0, 2, 3, 1), _padding(conv)
        if top or left:
            x = nn.functional.pad(x, (0, 0, left, left, top, top))
        weight = self.weight.permute(0, 3, 4, 2, 1)  # (num, rows, columns, in, out)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        out: Tensor = Convolve.apply(x, weight.to(x.dtype), bias)  # type: ignore[no-untyped-call]
        return out.permute(0, 3, 1, 2)


class StackedFirst(StackedConv2d):
    """A convolution and the `after` of it, pooling and ReLU: at once where x needs no gradient."""

    def __init__(self, layer: nn.Module, num: int, after: Sequence[nn.Module]) -> None:
        super().__init__(layer, num)
        self.after = tuple(after)  # in a tuple, as in the network: they have no weights
        (pool,) = (m for m in after if isinstance(m, StackedMaxPool))
        self.size = pool.size

    def forward(self, x: Tensor) -> Tensor:
        (conv,) = self.layer
        assert isinstance(conv, nn.Conv2d)
        is_small = x[:, 0].numel() * max(x.shape[1], self.weight.shape[1]) < 1 << 31
        if x.is_cuda and not x.requires_grad and is_small and gpu_kernels() is not None:
            last = x.permute(0, 2, 3, 1)
            given = (self.weight, self.bias, _padding(conv), self.size)
            joined: Tensor = FirstLayer.apply(last, *given)  # type: ignore[no-untyped-call]
            return joined.permute(0, 3, 1, 2)
        out = super().forward(x)
        for module in self.after:
            out = module(out)
        return out


class StackedBatchNorm(Stacked):
    """BatchNorm over each client's own samples, with its own running statistics."""

    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Tensor) -> Tensor:
        (norm,) = self.layer
        assert isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)
        each = self.apart(x).float()
        over = [1, *range(3, each.ndim)]
        if self.training:
            mean, var = each.mean(over), each.var(over, correction=0)
            count = each.numel() // (self.num * each.shape[2])
            if count == 1:
                raise ValueError(ONE_VALUE)
            with torch.no_grad():
                assert norm.momentum is not None
                self.running_mean.lerp_(mean, norm.momentum)
                self.running_var.lerp_(var * count / (count - 1), norm.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        shape = (self.num, 1, -1) + (1,) * (each.ndim - 3)
        scale = self.weight * torch.rsqrt(var + norm.eps)
        shift = (self.bias if self.bias is not None else 0) - mean * scale
        return (each * scale.view(shape) + shift.view(shape)).flatten(0, 1).to(x.dtype)


class StackedMaxPool(nn.Module):
    """Pooling has no weights; this one is a pass over memory instead of several."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        super().__init__()
        assert isinstance(layer.kernel_size, int)
        self.size = layer.kernel_size

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = MaxPool.apply(x.permute(0, 2, 3, 1), self.size)  # type: ignore[no-untyped-call]
        return out.permute(0, 3, 1, 2)


def _padding(conv: nn.Conv2d) -> tuple[int, int]:
    """Rows above and below, columns on either side."""
    if isinstance(conv.padding, str):  # "valid"
        return 0, 0
    return conv.padding[0], conv.padding[1]


def _rows(tensor: Tensor, num: int) -> nn.Parameter:
    """A row per client; of a frozen tensor, the same one for all."""
    if not tensor.requires_grad:
        return nn.Parameter(tensor.detach().expand(num, *tensor.shape), requires_grad=False)
    return nn.Parameter(tensor.new_empty(num, *tensor.shape))


MOST_NUMBERS, MOST_OUT = 64, 128  # of a window and of its outputs, to be held by a processor
LAYERS: dict[type[nn.Module], Callable[[nn.Module, int], nn.Module]] = {
    nn.Linear: StackedLinear,
    nn.Conv2d: StackedConv2d,
    nn.BatchNorm1d: StackedBatchNorm,
    nn.BatchNorm2d: StackedBatchNorm,
}


def stack_layers(network: nn.Module, num: int) -> nn.Module:
    """`network`, changed: every module that has weights of its own in its stacked form."""
    if type(network) in LAYERS and not _is_constant(network):
        return LAYERS[type(network)](network, num)
    if type(network) is nn.MaxPool2d and _is_tiling(network):
        return StackedMaxPool(network)
    for name, child in network.named_children():
        setattr(network, name, stack_layers(child, num))
    if type(network) is nn.Sequential:
        _join_first(network)
    return network


def _join_first(network: nn.Sequential) -> None:
    """Make one layer of a convolution of few numbers and the pooling and ReLU that follow it."""
    named = [(n, m) for n, m in network.named_children() if type(m) is not nn.Identity]
    for (name, conv), *after in zip(named, named[1:], named[2:]):
        kinds = {type(module) for _, module in after}
        if type(conv) is not StackedConv2d or kinds != {StackedMaxPool, nn.ReLU}:
            continue
        if conv.weight[0, 0].numel() < MOST_NUMBERS and conv.weight.shape[1] <= MOST_OUT:
            joined = StackedFirst(conv.layer[0], conv.num, [module for _, module in after])
            setattr(network, name, joined)
            for other, _ in after:
                setattr(network, other, nn.Identity())


def why_not(network: nn.Module) -> str | None:
    """Why a network has no stacked layers, as the end of a sentence, or None if nothing is seen.

    What the modules do not show is found out by trying (`likeness.py`).
    """
    owners: dict[int, str] = {}
    for name, module in network.named_modules(remove_duplicate=False):
        kind = type(module)
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and not (
            module.affine and module.track_running_stats and module.momentum is not None
        ):
            return f"'{name}' is a BatchNorm without weights, running statistics or momentum"
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if own and (kind not in LAYERS or not _is_plain(module)):
            return f"'{name}' ({kind.__name__}) has no stacked form"
        for tensor in own:
            if (other := owners.setdefault(id(tensor), name)) != name:
                return f"'{name}' and '{other}' share weights"
    return None


def _is_constant(layer: nn.Module) -> bool:
    """Whether training changes nothing of a layer, so that it serves all clients as it is."""
    floats = [buffer for buffer in layer.buffers() if buffer.is_floating_point()]
    return not floats and not any(p.requires_grad for p in layer.parameters())


def _is_plain(module: nn.Module) -> bool:
    """Whether a convolution is one of patches; other layers always are."""
    return not isinstance(module, nn.Conv2d) or (
        module.groups == 1
        and module.stride == (1, 1)
        and module.dilation == (1, 1)
        and module.padding_mode == "zeros"
        and module.padding != "same"
    )


def _is_tiling(pool: nn.MaxPool2d) -> bool:
    """Whether the windows lie side by side, so that every pixel is in one of them."""
    return (
        isinstance(pool.kernel_size, int)
        and pool.kernel_size <= 15  # of which one byte says where the maximum was
        and pool.stride == pool.kernel_size
        and (pool.padding, pool.dilation) == (0, 1)
        and not (pool.ceil_mode or pool.return_indices)
    )
