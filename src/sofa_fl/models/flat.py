"""A network as one flat vector: trainable parameters first, then float buffers.

So aggregation is a weighted mean, distance is a norm, and stacking is rows. Integer buffers
(BatchNorm counts its batches in one) are no part of the vector: they stay with the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from sofa_fl.errors import ModelError

Vector = Tensor  # one-dimensional, float32


class FlatNetwork:
    """A network whose parameters, gradients and float buffers are views into flat vectors.

    Writing to `vector` changes the network; training the network changes `vector`.
    """

    def __init__(self, network: nn.Module, device: str | torch.device = "cpu") -> None:
        self.network = network.to(device)
        named = dict(network.named_parameters())
        if not named:
            raise ModelError("the network has no parameters to train")
        if wrong := [n for n, t in self._entries() if t.dtype != torch.float32]:
            raise ModelError(
                f"parameters and float buffers must be float32, these are not: {wrong}"
            )
        self.num_trainable = sum(p.numel() for p in named.values())
        size = sum(t.numel() for _, t in self._entries())
        self.vector: Vector = torch.empty(size, device=device)
        self.gradient = torch.zeros(self.num_trainable, device=device)
        self.shapes: dict[str, tuple[slice, torch.Size]] = {}
        start = 0
        for name, tensor in list(self._entries()):
            piece = slice(start, start + tensor.numel())
            view = self.vector[piece].view(tensor.shape)
            view.copy_(tensor.detach())
            if name in named:
                tensor.data = view
                tensor.grad = self.gradient[piece].view(tensor.shape)
            else:
                owner, _, leaf = name.rpartition(".")
                network.get_submodule(owner)._buffers[leaf] = view
            self.shapes[name] = (piece, tensor.shape)
            start = piece.stop

    def _entries(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.network.named_parameters()
        yield from ((n, b) for n, b in self.network.named_buffers() if b.is_floating_point())

    @property
    def trainable(self) -> Vector:
        return self.vector[: self.num_trainable]

    def load(self, vector: Vector) -> None:
        if vector.shape != self.vector.shape:
            raise ModelError(
                f"a vector of {vector.numel()} numbers does not fit "
                f"a network of {self.vector.numel()}"
            )
        self.vector.copy_(vector)

    def state_dict(self, vector: Vector) -> dict[str, Tensor]:
        """`vector` by name and shape, as torch's own `load_state_dict` takes it."""
        named = {n: vector[piece].view(shape).clone() for n, (piece, shape) in self.shapes.items()}
        return {n: named.get(n, t) for n, t in self.network.state_dict().items()}


def mean(vectors: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """The weighted mean of `vectors`."""
    total = float(sum(weights))
    out = torch.zeros_like(vectors[0])
    for vector, weight in zip(vectors, weights, strict=True):
        out.add_(vector, alpha=weight / total)
    return out
