"""Many networks of one kind as one: layers that hold a row of weights per client.

`StackedNetwork` copies a network and replaces its layers with weights by stacked ones. A batch
then holds all clients' samples one after the other, so the network's own `forward` runs
unchanged: whatever has no weights does not care whose samples it is given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sofa_fl.models.flat import FlatNetwork, Vector, check_size


class Stacked(nn.Module):
    """A layer of `num` networks; its tensors have a first dimension of `num`."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Module, num: int) -> None:
        super().__init__()
        self.layer, self.num = (layer,), num  # in a tuple: no submodule, so no weights of its own
        tensors = dict(layer.named_parameters(recurse=False))
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor.new_empty(num, *tensor.shape)))
        for name, buffer in layer.named_buffers(recurse=False):
            if buffer.is_floating_point():
                self.register_buffer(name, buffer.new_empty(num, *buffer.shape))

    def apart(self, x: Tensor) -> Tensor:
        """`(num · batch, …)` as `(num, batch, …)`."""
        return x.view(self.num, -1, *x.shape[1:])


class StackedLinear(Stacked):
    def forward(self, x: Tensor) -> Tensor:
        x, weight = self.apart(x), self.weight.transpose(1, 2)
        if self.bias is None:
            return torch.bmm(x, weight).flatten(0, 1)
        return torch.baddbmm(self.bias[:, None], x, weight).flatten(0, 1)


class StackedConv2d(Stacked):
    """A convolution as one matrix product per client over its samples' patches."""

    def forward(self, x: Tensor) -> Tensor:
        (conv,) = self.layer
        assert isinstance(conv, nn.Conv2d)
        top, left = conv.padding if isinstance(conv.padding, tuple) else (0, 0)
        x = functional.pad(x.permute(0, 2, 3, 1), (0, 0, left, left, top, top))
        weight = self.weight.permute(0, 3, 4, 2, 1)  # (num, rows, columns, in, out)
        out: Tensor = _Convolve.apply(x, weight)  # type: ignore[no-untyped-call]
        if self.bias is not None:
            each = self.apart(out)
            out = (each + self.bias[:, None, None, None]).view(out.shape)
        return out.permute(0, 3, 1, 2)


class _Convolve(torch.autograd.Function):
    """`(num · batch, height, width, in)` with `(num, rows, columns, in, out)`, channels last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        num, rows, columns, _, num_out = weight.shape
        height, width = x.shape[1] - rows + 1, x.shape[2] - columns + 1
        patches = torch.cat(
            [x[:, i : i + height, j : j + width] for i in range(rows) for j in range(columns)],
            dim=3,
        )
        flat = weight.reshape(num, -1, num_out)
        ctx.save_for_backward(patches, flat)
        ctx.shapes = x.shape, weight.shape
        return torch.bmm(patches.view(num, -1, flat.shape[1]), flat).view(
            len(x), height, width, num_out
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor]:
        patches, flat = ctx.saved_tensors
        x_shape, weight_shape = ctx.shapes
        num, size, num_out = flat.shape
        gradient = gradient.contiguous()
        # A long sum for few weights keeps few processors busy: sum it in parts.
        length = gradient.numel() // (num * num_out)
        parts = next(k for k in (16, 12, 10, 9, 8, 6, 5, 4, 3, 2, 1) if length % k == 0)
        cut = (num * parts, length // parts)
        d_weight = torch.bmm(patches.view(*cut, size).transpose(1, 2), gradient.view(*cut, num_out))
        d_weight = d_weight.view(num, parts, size, num_out).sum(dim=1).view(weight_shape)
        if not ctx.needs_input_grad[0]:
            return None, d_weight
        _, rows, columns, num_in, _ = weight_shape
        height, width = gradient.shape[1:3]
        d_patches = torch.bmm(gradient.view(num, -1, num_out), flat.transpose(1, 2))
        d_patches = d_patches.view(-1, height, width, rows, columns, num_in)
        d_x = gradient.new_zeros(x_shape)
        for i in range(rows):
            for j in range(columns):
                d_x[:, i : i + height, j : j + width] += d_patches[:, :, :, i, j]
        return d_x, d_weight


class StackedBatchNorm(Stacked):
    """BatchNorm over each client's own samples, with its own running statistics."""

    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Tensor) -> Tensor:
        (norm,) = self.layer
        assert isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)
        each = self.apart(x)
        over = [1, *range(3, each.ndim)]
        if self.training:
            mean, var = each.mean(over), each.var(over, correction=0)
            count = each.numel() // (self.num * each.shape[2])
            with torch.no_grad():
                assert norm.momentum is not None
                self.running_mean.lerp_(mean, norm.momentum)
                self.running_var.lerp_(var * count / max(count - 1, 1), norm.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        shape = (self.num, 1, -1) + (1,) * (each.ndim - 3)
        scale = self.weight * torch.rsqrt(var + norm.eps)
        shift = (self.bias if self.bias is not None else 0) - mean * scale
        return (each * scale.view(shape) + shift.view(shape)).flatten(0, 1)


LAYERS: dict[type[nn.Module], Callable[[nn.Module, int], Stacked]] = {
    nn.Linear: StackedLinear,
    nn.Conv2d: StackedConv2d,
    nn.BatchNorm1d: StackedBatchNorm,
    nn.BatchNorm2d: StackedBatchNorm,
}


def why_not(network: nn.Module) -> str | None:
    """Why a network cannot be stacked, as the end of a sentence, or None if it can."""
    if frozen := [name for name, p in network.named_parameters() if not p.requires_grad]:
        return f"{frozen} are frozen"
    for name, module in network.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            return f"'{name}' draws at random, and clients must not share draws"
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and not (
            module.affine and module.track_running_stats and module.momentum is not None
        ):
            return f"'{name}' is a BatchNorm without weights, running statistics or momentum"
        if isinstance(module, nn.Conv2d) and (
            module.groups != 1
            or module.stride != (1, 1)
            or module.dilation != (1, 1)
            or module.padding_mode != "zeros"
            or module.padding == "same"
        ):
            return f"'{name}' is a convolution with groups, a stride, dilation or odd padding"
        own = list(module.parameters(recurse=False)) + list(module.buffers(recurse=False))
        if own and type(module) not in LAYERS:
            return f"'{name}' ({type(module).__name__}) has weights and no stacked form"
    return None


class StackedNetwork:
    """`num` networks of one kind; weights, gradients and float buffers in one block each.

    In the block of all trainable weights, each tensor's rows for all clients lie together, so
    that one optimizer step covers everything and matrix products read straight through.
    """

    def __init__(self, flat: FlatNetwork, num: int) -> None:
        self.num, self.num_trainable, self.size = num, flat.num_trainable, len(flat.vector)
        device = flat.vector.device
        self.network = _replace(copy.deepcopy(flat.network), num)
        self.weights = nn.Parameter(torch.zeros(num * flat.num_trainable, device=device))
        self.gradient = torch.zeros_like(self.weights.data)
        self.weights.grad = self.gradient
        self.pieces = list(flat.shapes.items())
        self._tensors: list[Tensor] = []
        named = dict(self.network.named_parameters()) | dict(self.network.named_buffers())
        start = 0
        for name, (_, shape) in self.pieces:
            tensor = named[name]
            if isinstance(tensor, nn.Parameter):
                block = slice(start, start + num * shape.numel())
                tensor.data = self.weights.data[block].view(num, *shape)
                tensor.grad = self.gradient[block].view(num, *shape)
                start = block.stop
            self._tensors.append(tensor)

    @torch.no_grad()
    def load(self, vectors: Sequence[Vector]) -> None:
        """Client `i` becomes `vectors[i]`; rows beyond the last are left as they are."""
        for vector in vectors:
            check_size(vector, self.size)
        stack = torch.stack(list(vectors))
        for (_, (piece, shape)), tensor in zip(self.pieces, self._tensors):
            tensor[: len(stack)].copy_(stack[:, piece].view(-1, *shape))

    @torch.no_grad()
    def unload(self, num: int) -> list[Vector]:
        """The first `num` networks as vectors."""
        parts = [tensor[:num].reshape(num, -1) for tensor in self._tensors]
        return list(torch.cat(parts, dim=1))

    @torch.no_grad()
    def block(self, vectors: Sequence[Vector]) -> Tensor:
        """The trainable part of `vectors` laid out as `weights` is."""
        stack = torch.stack(list(vectors))
        parts = [
            stack[:, piece] for _, (piece, _) in self.pieces if piece.stop <= self.num_trainable
        ]
        return torch.cat([part.reshape(-1) for part in parts])

    @torch.no_grad()
    def spread(self, values: Tensor) -> Tensor:
        """One number per client, repeated as `weights` is laid out."""
        sizes = [piece.stop - piece.start for _, (piece, _) in self.pieces]
        trainable = [
            s for s, (_, (p, _)) in zip(sizes, self.pieces) if p.stop <= self.num_trainable
        ]
        return torch.cat([values.repeat_interleave(size) for size in trainable])


def _replace(network: nn.Module, num: int) -> nn.Module:
    """`network` with every layer that has weights replaced by its stacked form."""
    if type(network) in LAYERS:
        return LAYERS[type(network)](network, num)
    for name, child in network.named_children():
        setattr(network, name, _replace(child, num))
    return network
