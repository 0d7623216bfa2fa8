"""Random draws of networks (dropout and the like): by a hash of seed, step and position.

So a client draws the same numbers in a loop and in a stack, whoever is stacked with it. Torch's own
generators cannot do that: they draw for a whole tensor, and one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sofa_fl.engine.windows import gpu_kernels
from sofa_fl.errors import EngineError

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: its multiples lie far apart
Replacement = Callable[..., Any]  # takes the draws, then what torch's function takes


class Draws:
    """The draws of one forward pass, in the order in which a network asks for them.

    `keys` is one number, or one of every client whose samples lie one after the other in a batch;
    without, whoever draws is refused.
    """

    def __init__(self, keys: Tensor | None) -> None:
        self.keys, self.count = keys, 0

    @classmethod
    def at(cls, seeds: Tensor, step: int | Tensor) -> Draws:
        """The draws of a training step."""
        return cls(_mix64(seeds + _multiple(step + 1)))

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """Numbers from 0 up to 1, multiples of 2^-24."""
        if self.keys is None:
            raise EngineError("a network that draws at random when it is evaluated has no seed")
        self.count += 1
        key, size = _mix64(self.keys + _multiple(self.count)), torch.Size(shape).numel()
        if not key.ndim:
            return _Uniform.apply(key, size).view(shape)  # type: ignore[no-any-return, no-untyped-call]
        if not shape or shape[0] % len(key):
            raise EngineError(f"draws of shape {tuple(shape)} are not draws per sample")
        return _uniform(key, size // len(key)).view(shape)

    def normal(self, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers, by Box and Muller."""
        radius = torch.sqrt(-2 * torch.log1p(-self.uniform(shape)))
        return radius * torch.cos(2 * torch.pi * self.uniform(shape))

    def keep(self, x: Tensor, p: float, shape: Sequence[int] | None = None) -> Tensor:
        """One with probability 1 - p, else zero."""
        return (self.uniform(x.shape if shape is None else shape) >= p).to(x.dtype)


class _Uniform(torch.autograd.Function):
    """Draws by one key; mapped over many, all of them at once."""

    @staticmethod
    def forward(key: Tensor, size: int) -> Tensor:
        return _uniform(key[None], size)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing: draws have no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, key: Tensor, size: int) -> tuple[Tensor, int]:
        return _uniform(key, size), 0


def _uniform(keys: Tensor, size: int) -> Tensor:
    """`(keys, size)` numbers from 0 up to 1."""
    first, second = _int32(keys), _int32(keys >> 32)
    own = _kernels() if keys.is_cuda else None
    return uniform(first, second, size) if own is None else own.uniform(first, second, size)


def uniform(first: Tensor, second: Tensor, size: int) -> Tensor:
    """As plain formulas: a row per key, which comes in two halves."""
    at = torch.arange(size, dtype=torch.int32, device=first.device)
    bits = _mix32(_mix32(at ^ first[:, None]) + second[:, None])
    return ((bits >> 8) & 0xFFFFFF).float() * 2.0**-24


@cache
def _kernels() -> ModuleType | None:
    """One kernel instead of twenty, if it compiles here and does what the formulas do."""
    own = gpu_kernels()
    some = torch.tensor([[1, -2], [3, 2**31 - 5]], dtype=torch.int32, device="cuda")
    pair = (some[0], some[1])
    try:
        is_same = own is not None and torch.equal(own.uniform(*pair, 99), uniform(*pair, 99))
    except Exception:  # as with the other kernels: what is missing will not be there later
        return None
    return own if is_same else None


class Rewriting(TorchFunctionMode):
    """While it is active, torch's functions in `table` are replaced by forms of our own.

    A form of our own that returns `NotImplemented` leaves the call to torch.
    """

    def __init__(self, table: Mapping[Any, Replacement], draws: Draws) -> None:
        super().__init__()
        self.table, self.draws = table, draws

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        own = self.table.get(func)
        if own is not None:
            with self:  # what is composed of other functions
                found = own(self.draws, *args, **kwargs)
            if found is not NotImplemented:
                return found
        return func(*args, **kwargs)


def _multiple(of: int | Tensor) -> Any:
    """A multiple of `GOLDEN`, as a signed number of 64 bits."""
    if isinstance(of, Tensor):
        return of * (GOLDEN - (1 << 64))
    return (GOLDEN * of + (1 << 63)) % (1 << 64) - (1 << 63)


def _mix64(x: Tensor) -> Tensor:
    """A bijection of 64-bit numbers that looks random (the finalizer of SplitMix64)."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * (0x94D049BB133111EB - (1 << 64))
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def _mix32(x: Tensor) -> Tensor:
    """A bijection of 32-bit numbers that looks random."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x21F0AAAD
    x = (x ^ ((x >> 15) & 0x1FFFF)) * (0xD35A2D97 - (1 << 32))
    return x ^ ((x >> 15) & 0x1FFFF)


def _int32(x: Tensor) -> Tensor:
    """The lower 32 bits, as a signed number."""
    return (((x & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000).to(torch.int32)
