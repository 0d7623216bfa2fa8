"""A network as one flat vector: trainable parameters first, then frozen ones and float buffers.

So aggregation is a weighted mean, distance is a norm, and stacking is rows. Integer buffers
(BatchNorm counts its batches in one) are no part of the vector: they start anew with every load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sofa_fl.errors import ModelError

Vector = Tensor  # one-dimensional, float32


class FlatNetwork:
    """A network whose parameters and float buffers are views into one flat vector.

    Writing to `vector` changes the network; training the network changes `vector`.
    """

    def __init__(self, network: nn.Module, device: str | torch.device = "cpu") -> None:
        self.network = network.to(device)
        named = {n: p for n, p in network.named_parameters() if p.requires_grad}
        if not named:
            raise ModelError("the network has no parameters to train")
        if wrong := [n for n, t in self._entries() if t.dtype != torch.float32]:
            raise ModelError(
                f"parameters and float buffers must be float32, these are not: {wrong}"
            )
        self.weights = list(named.values())
        self.num_trainable = sum(p.numel() for p in self.weights)
        size = sum(t.numel() for _, t in self._entries())
        self.vector: Vector = torch.empty(size, device=device)
        self.shapes: dict[str, tuple[slice, torch.Size]] = {}
        start = 0
        for name, tensor in list(self._entries()):
            piece = slice(start, start + tensor.numel())
            view = self.vector[piece].view(tensor.shape)
            view.copy_(tensor.detach())
            if isinstance(tensor, nn.Parameter):
                tensor.data = view
            else:
                owner, _, leaf = name.rpartition(".")
                network.get_submodule(owner)._buffers[leaf] = view
            self.shapes[name] = (piece, tensor.shape)
            start = piece.stop
        buffers = network.named_buffers()
        self._counts = {n: b.clone() for n, b in buffers if not b.is_floating_point()}

    def _entries(self) -> Iterator[tuple[str, Tensor]]:
        parameters = list(self.network.named_parameters())
        yield from ((n, p) for n, p in parameters if p.requires_grad)
        yield from ((n, p) for n, p in parameters if not p.requires_grad)
        yield from ((n, b) for n, b in self.network.named_buffers() if b.is_floating_point())

    @property
    def trainable(self) -> Vector:
        return self.vector[: self.num_trainable]

    def pieces(self, vector: Vector) -> list[Tensor]:
        """`vector`, of the trainable numbers, weight by weight."""
        sizes = [weight.numel() for weight in self.weights]
        parts = torch.split(vector, sizes)
        return [part.view(weight.shape) for part, weight in zip(parts, self.weights)]

    def load(self, vector: Vector) -> None:
        check_size(vector, len(self.vector))
        self.vector.copy_(vector)
        for name, count in self._counts.items():
            self.network.get_buffer(name).copy_(count)

    def state_dict(self, vector: Vector) -> dict[str, Tensor]:
        """`vector` by name and shape, as torch's own `load_state_dict` takes it."""
        memory = self.vector.untyped_storage().data_ptr()

        def read(tensor: Tensor) -> Tensor:
            if tensor.untyped_storage().data_ptr() != memory:
                return tensor
            start = tensor.storage_offset()
            return vector[start : start + tensor.numel()].view(tensor.shape).clone()

        return {name: read(tensor) for name, tensor in self.network.state_dict().items()}


def check_size(vector: Vector, size: int) -> None:
    """Raise if `vector` is no model of a network of `size` numbers."""
    if vector.shape != (size,):
        raise ModelError(f"a vector of {vector.numel()} numbers does not fit a network of {size}")


def inner_products(vectors: Sequence[Vector], block: int = 1 << 16) -> NDArray[np.float64]:
    """The inner product of every pair, in double precision, a block of columns at a time."""
    products = torch.zeros(len(vectors), len(vectors), dtype=torch.float64).to(vectors[0].device)
    for start in range(0, len(vectors[0]), block):
        columns = torch.stack([vector[start : start + block] for vector in vectors]).double()
        products.addmm_(columns, columns.T)
    return products.cpu().numpy()


def products_with(
    vectors: Sequence[Vector], others: Sequence[Vector], block: int = 1 << 12, rows: int = 512
) -> NDArray[np.float64]:
    """The inner product of every vector with every one of `others`, of which there are few.

    Blocks are multiplied in single precision and summed in double, which is good to seven
    digits; on a GPU, where double precision is cheap and single may not be, in double.
    """
    device = vectors[0].device
    kind = torch.float64 if device.type == "cuda" else torch.float32
    products = torch.zeros(len(vectors), len(others), dtype=torch.float64, device=device)
    for first in range(0, len(vectors), rows):
        some = vectors[first : first + rows]
        for start in range(0, len(vectors[0]), block):
            left = torch.stack([vector[start : start + block] for vector in some]).to(kind)
            right = torch.stack([vector[start : start + block] for vector in others]).to(kind)
            products[first : first + rows] += (left @ right.T).double()
    return products.cpu().numpy()


def empty_like(vector: Vector) -> Vector:
    """Memory for another model.

    On a CPU it comes from NumPy. Torch asks for aligned memory, which glibc cannot find in the gap
    that a model of the same size has left: a process that makes and drops models would grow to
    twice what it holds. NumPy's fits, and lies on huge pages.
    """
    if vector.device.type != "cpu" or vector.dtype != torch.float32:
        return torch.empty_like(vector)
    return torch.from_numpy(np.empty(vector.shape, dtype=np.float32))


def mean(vectors: Sequence[Vector], weights: Sequence[float], out: Vector | None = None) -> Vector:
    """The weighted mean of `vectors`, in new memory or in `out`."""
    total = float(sum(weights))
    out = (empty_like(vectors[0]) if out is None else out).zero_()
    for vector, weight in zip(vectors, weights, strict=True):
        out.add_(vector, alpha=weight / total)
    return out
