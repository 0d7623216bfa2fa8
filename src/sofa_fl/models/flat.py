"""Models as flat vectors: an aggregate is a weighted mean, a distance is a norm.

A thousand clients may start from, or serve, a blend of models each. Kept as what it is made of
(`Mix`), a blend costs nothing until an engine loads it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sofa_fl.errors import ModelError
from sofa_fl.models.config import Aggregate as Aggregate
from sofa_fl.models.gpu_sums import add_up, measure

V = TypeVar("V")
Vector = Tensor  # one-dimensional, float32
AT_ONCE = 32  # models that are worked on together, as copies
ROOM = 1 << 26  # numbers of all such copies
BLOCK = 1 << 24  # numbers sorted at a time


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """The mean of `models`, weighted by `weights`, not computed yet."""

    models: tuple[Vector, ...]
    weights: tuple[float, ...]

    @property
    def nbytes(self) -> int:
        """The size of the one model that it stands for."""
        return self.models[0].nbytes


Model = Vector | Mix


def identity(model: Model) -> tuple[object, ...]:
    """The same for the same model, and for mixes of the same models by the same weights.

    It goes by where the models are in memory, so it holds as long as they live.
    """
    if not isinstance(model, Mix):
        return (id(model),)
    if len(model.models) == 1:
        return (id(model.models[0]),)
    return (*map(id, model.models), *model.weights)


def as_vector(model: Model) -> Vector:
    """The model as one vector; a mix is computed now, and a mix of one model is that model."""
    if not isinstance(model, Mix):
        return model
    if len(model.models) == 1:
        return model.models[0]
    return mean(model.models, model.weights)


def write(model: Model, out: Vector) -> None:
    """Put a model's numbers into memory that is there; the same bits as `as_vector` gives."""
    if isinstance(model, Mix) and len(model.models) > 1:
        mean(model.models, model.weights, out=out)
    else:
        out.copy_(as_vector(model))


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


def distances(vectors: Sequence[Vector], others: Iterable[Vector]) -> list[Tensor]:
    """How far every vector is from its counterpart: few operations on a GPU, little memory."""
    found: list[Tensor] = []
    others = iter(others)
    for first in range(0, len(vectors), AT_ONCE):
        some = list(vectors[first : first + AT_ONCE])
        theirs = list(islice(others, len(some)))
        measured = measure(some, theirs) if some[0].is_cuda else None
        found += measured or torch._foreach_norm(torch._foreach_sub(some, theirs))
    return found


def empty_like(vector: Vector) -> Vector:
    """Memory for another model."""
    if vector.dtype != torch.float32:
        return torch.empty_like(vector)
    return new_vector(len(vector), vector.device)


def new_vector(size: int, device: torch.device) -> Vector:
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


class IdentityDict(MutableMapping[Any, V]):
    """Values by the identity of a model, an array, or a tuple of such objects and plain values.

    Mixes of the same models by the same weights are one key. The dictionary holds its keys: Python
    gives the id of an object that is gone to another.
    """

    def __init__(self) -> None:
        self._entries: dict[object, tuple[Any, V]] = {}

    def __getitem__(self, key: Any) -> V:
        return self._entries[_id_of(key)][1]

    def __setitem__(self, key: Any, value: V) -> None:
        self._entries[_id_of(key)] = key, value

    def __delitem__(self, key: Any) -> None:
        del self._entries[_id_of(key)]

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def _id_of(key: Any) -> object:
    if isinstance(key, tuple):
        return tuple(_id_of(part) for part in key)
    if isinstance(key, str | bool):  # compared by value
        return key
    if isinstance(key, Mix):
        return identity(key)
    return (id(key),)


def aggregate(
    models: Sequence[Vector], weights: Sequence[float], how: Aggregate = "mean", trim: float = 0.25
) -> Vector:
    """The mean of models by `weights`; or, number by number, their median or trimmed mean.

    The latter two (arXiv:1803.01498) count every model once: who sends a bad one may as well claim
    any weight. The trimmed mean leaves out the lowest and the highest `trim` of all, one of three
    at least; of two models nothing can be left out.
    """
    n = len(models)
    cut = (n - 1) // 2 if how == "median" else min(math.ceil(trim * n), (n - 1) // 2)
    if how == "mean" or n < 3 or not cut:
        return mean(models, weights if how == "mean" else [1.0] * n)
    middle = torch.empty_like(models[0])
    size = max(1, BLOCK // n)
    for start in range(0, len(middle), size):
        block = torch.stack([model[start : start + size] for model in models], dim=1)
        ordered = torch.sort(block, dim=1).values
        middle[start : start + size] = ordered[:, cut : n - cut].mean(dim=1)
    return middle
