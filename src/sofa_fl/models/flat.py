"""A network as one flat vector: trainable parameters first, then float buffers.

So aggregation is a weighted mean, distance is a norm, and stacking is rows. Frozen parameters are
no part of the vector: they are the same for all. Nor are buffers of which no mean could be taken
(`is_averaged`; BatchNorm counts its batches in one): they start anew with every load.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sofa_fl.errors import ModelError
from sofa_fl.models.calls import Home, Kept
from sofa_fl.models.gpu_sums import add_up, measure
from sofa_fl.models.networks import frozen_of, hold

Vector = Tensor  # one-dimensional, float32
AT_ONCE = 32  # models that are worked on together, as copies
ROOM = 1 << 26  # numbers of all such copies


class FlatNetwork:
    """A network, and its trainable parameters and float buffers as one flat vector.

    The network keeps its tensors where torch put them: cuDNN reads 16 bytes at a time and fails on
    tensors that lie closer together, as in a dense vector they would. Frozen parameters share
    memory with those of other networks in this process, and have `frozen_digest` in common.
    `kept` is what the network keeps beside the vector, `home` where it makes tensors.
    """

    def __init__(self, network: nn.Module, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)
        self.home = Home(self.device)
        self.frozen_digest = hold(network, self.device)
        self.network = network.to(device)
        self.weights = [p for p in network.parameters() if p.requires_grad]
        if not self.weights:
            raise ModelError("the network has no parameters to train")
        self.num_trainable = sum(p.numel() for p in self.weights)
        names = [name for name, p in network.named_parameters() if p.requires_grad]
        layers = [name.rpartition(".")[0] for name in names]
        self.first_of_head = layers.index(layers[-1])  # the layer that was registered last
        self.num_head = sum(p.numel() for p in self.weights[self.first_of_head :])
        if wrong := [name for name, p in zip(names, self.weights) if p.is_complex()]:
            raise ModelError(
                f"trainable parameters must be real, but {wrong[0]} is complex; keep its real and "
                "imaginary parts in one real parameter, and read it with torch.view_as_complex"
            )
        if wrong := [name for name, p in zip(names, self.weights) if p.dtype != torch.float32]:
            raise ModelError(
                f"trainable parameters must be float32, but these are not: {wrong}; call the "
                "network's float(), and use local.precision to set the precision of training"
            )
        self._averaged = frozenset(n for n, _ in network.named_buffers() if is_averaged(network, n))
        self._separate()
        self.places: dict[str, slice] = {}  # where in the vector each tensor is
        self.size = 0
        for name, tensor in self.tensors.items():
            self.places[name] = slice(self.size, self.size + tensor.numel())
            self.size += tensor.numel()
        self.kept = Kept(network, but=self._averaged)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What the vector is made of, in order: read anew, since a network may replace buffers."""
        parameters, buffers = self.network.named_parameters(), self.network.named_buffers()
        return {
            **{n: p for n, p in parameters if p.requires_grad},
            **{n: b for n, b in buffers if n in self._averaged},
        }

    @property
    def frozen(self) -> dict[str, nn.Parameter]:
        """What the vector leaves out, by name."""
        return frozen_of(self.network)

    def _separate(self) -> None:
        """Give each tensor memory of its own: two parameters may have been made of one tensor."""
        taken = [_memory(parameter) for parameter in self.frozen.values()]
        for tensor in self.tensors.values():
            first, last = _memory(tensor)
            is_shared = any(first < end and start < last for start, end in taken)
            if is_shared or 0 in tensor.stride():
                tensor.data = tensor.detach().clone(memory_format=torch.contiguous_format)
            taken.append(_memory(tensor))

    @property
    def vector(self) -> Vector:
        """A copy of the network's numbers, in new memory."""
        out = _new_vector(self.size, self.device)
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                out[self.places[name]].view(tensor.shape).copy_(tensor)
        return out

    @torch.no_grad()
    def load(self, vector: Vector) -> None:
        check_size(vector, self.size)
        self.kept.restore()
        for name, tensor in self.tensors.items():
            tensor.copy_(vector[self.places[name]].view(tensor.shape))

    def pieces(self, vector: Vector) -> list[Tensor]:
        """`vector`, of the trainable numbers, weight by weight."""
        sizes = [weight.numel() for weight in self.weights]
        parts = torch.split(vector, sizes)
        return [part.view(weight.shape) for part, weight in zip(parts, self.weights)]

    def span(self, part: Literal["all", "body", "head"]) -> slice:
        """Which of the weights are a part of the network: all, the last layer, or those below."""
        if part == "all":
            return slice(None)
        if not self.first_of_head:
            raise ModelError(
                "a network with one layer cannot be divided into a body and a head; use a deeper "
                "network or another method"
            )
        return slice(self.first_of_head, None) if part == "head" else slice(self.first_of_head)

    def state_dict(self, vector: Vector) -> dict[str, Tensor]:
        """`vector` by name and shape, as torch's own `load_state_dict` takes it."""
        check_size(vector, self.size)
        places = {id(tensor): self.places[name] for name, tensor in self.tensors.items()}

        def read(tensor: Tensor) -> Tensor:
            piece = places.get(id(tensor))
            numbers = tensor.detach() if piece is None else vector[piece].view(tensor.shape)
            return numbers.to(tensor.dtype, copy=True)

        named = self.network.state_dict(keep_vars=True)
        return {name: read(tensor) for name, tensor in named.items()}


def is_averaged(network: nn.Module, name: str) -> bool:
    """Whether a buffer is a part of the model, as running statistics are.

    It is if it has floats, is saved with the network, and can be averaged: a mask of minus
    infinity cannot.
    """
    buffer = network.get_buffer(name)
    layer, _, own = name.rpartition(".")
    is_saved = own not in getattr(network.get_submodule(layer), "_non_persistent_buffers_set", ())
    return buffer.is_floating_point() and is_saved and bool(buffer.isfinite().all())


def _memory(tensor: Tensor) -> tuple[int, int]:
    """From where to where in memory a tensor's numbers lie."""
    if not tensor.numel():
        return 0, 0
    span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (span + 1) * tensor.element_size()


def check_size(vector: Vector, size: int) -> None:
    """Raise if `vector` is no model of a network of `size` numbers."""
    if vector.shape != (size,):
        raise ModelError(f"a vector of {vector.numel()} numbers does not fit a network of {size}")


def inner_products(vectors: Sequence[Vector], block: int = 1 << 16) -> NDArray[np.float64]:
    """The inner product of every pair, in double precision, a block of columns at a time."""
    num, size = len(vectors), len(vectors[0])
    products = vectors[0].new_zeros(num, num, dtype=torch.float64)
    wide = block * max(1, ROOM // (num * block))  # some blocks are put together in one operation
    for first in range(0, size, wide):
        rows = torch.stack([vector[first : first + wide] for vector in vectors])
        if rows.is_cuda:
            products += side_by_side(rows)
            continue
        for some in torch.split(rows, block, dim=1):
            columns = some.double()
            products.addmm_(columns, columns.T)
    return products.cpu().numpy()


def side_by_side(rows: Tensor, block: int = 1 << 13) -> Tensor:
    """The inner products of rows in double precision, all blocks of columns at once, for a GPU.

    The product of one block has as few numbers as there are pairs, so most of a GPU would idle.
    """
    whole = rows.shape[1] // block * block
    blocks = rows[:, :whole].double().reshape(len(rows), -1, block).transpose(0, 1)
    rest = rows[:, whole:].double()
    return torch.bmm(blocks, blocks.transpose(1, 2)).sum(dim=0) + rest @ rest.T


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


def distances(vectors: Sequence[Vector], others: Iterable[Vector]) -> list[Tensor]:
    """How far every vector is from its counterpart: few operations on a GPU, little memory."""
    found: list[Tensor] = []
    others = iter(others)
    for first in range(0, len(vectors), AT_ONCE):
        some = list(vectors[first : first + AT_ONCE])
        theirs = list(islice(others, len(some)))
        measured = measure(some, theirs)
        found += measured or torch._foreach_norm(torch._foreach_sub(some, theirs))
    return found


def empty_like(vector: Vector) -> Vector:
    """Memory for another model."""
    if vector.dtype != torch.float32:
        return torch.empty_like(vector)
    return _new_vector(len(vector), vector.device)


def _new_vector(size: int, device: torch.device) -> Vector:
    """Memory for a model.

    On a CPU it comes from NumPy. Torch asks for aligned memory, which glibc cannot find in the gap
    that a model of the same size has left: a process that makes and drops models would grow to
    twice what it holds. NumPy's fits, and lies on huge pages.
    """
    if device.type != "cpu":
        return torch.empty(size, device=device)
    return torch.from_numpy(np.empty(size, dtype=np.float32))


def reading(array: NDArray[Any]) -> Tensor:
    """A tensor on the memory of `array`, which may be a file's or another process's: only read it.

    Torch has no tensors that cannot be written to, and warns where the memory cannot.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array as a tensor on a device, without waiting for what a GPU still has to do.

    The driver copies ordinary memory aside before it returns, so the array may change at once.
    """
    return torch.from_numpy(array).to(device, non_blocking=True)


def mean(vectors: Sequence[Vector], weights: Sequence[float], out: Vector | None = None) -> Vector:
    """The weighted mean of `vectors`, in new memory or in `out`."""
    total = float(sum(weights))
    out = empty_like(vectors[0]) if out is None else out
    shares = [weight / total for weight in weights]
    if out.is_cuda and len(vectors) > 2:
        return add_together(vectors, shares, out)
    out.zero_()
    for vector, share in zip(vectors, shares, strict=True):
        out.add_(vector, alpha=share)
    return out


def add_together(vectors: Sequence[Vector], shares: Sequence[float], out: Vector) -> Vector:
    """Make `out` the sum of the vectors, multiplied by their shares, in few steps for a GPU."""
    if add_up([list(zip(vectors, shares))], out[None]):
        return out
    out.zero_()
    factors = on_device(np.array(shares, dtype=np.float32), out.device)
    for first in range(0, len(vectors), AT_ONCE):
        rows = torch.stack(list(vectors[first : first + AT_ONCE]))
        out.addmv_(rows.T, factors[first : first + AT_ONCE])
    return out
