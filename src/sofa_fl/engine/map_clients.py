"""What happens to a network's calls of torch while `torch.func` maps it over clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (
    get_unwrapped,
    is_batchedtensor,
    maybe_current_level,
    maybe_get_bdim,
)
from torch.nn import functional

from sofa_fl.engine.draws import Draws, Rewriting
from sofa_fl.engine.mapping import MAPPED
from sofa_fl.engine.recurrent import RECURRENT
from sofa_fl.errors import EngineError

# What autocast computes in bf16 and what in float32; it does not reach into mapped functions.
LOW = {
    functional.linear, functional.bilinear, functional.conv1d, functional.conv2d,
    functional.conv3d, functional.conv_transpose1d, functional.conv_transpose2d,
    functional.conv_transpose3d, torch.matmul, torch.bmm, torch.mm, torch.mv, torch.addmm,
    torch.baddbmm, functional.prelu, Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__,
    Tensor.bmm, Tensor.mm, functional.scaled_dot_product_attention, torch.einsum, *RECURRENT,
}  # fmt: skip
HIGH = {
    functional.softmax, torch.softmax, Tensor.softmax, functional.log_softmax, torch.log_softmax,
    Tensor.log_softmax, functional.layer_norm, functional.group_norm, functional.instance_norm,
    functional.local_response_norm, functional.avg_pool3d, torch.cdist,
    # These take numbers of one type, and are often given some of either.
    torch.dot, Tensor.dot, torch.tensordot, functional.grid_sample, torch.index_add,
    Tensor.index_add, torch.scatter_add, Tensor.scatter_add,
}  # fmt: skip
# What reads a value out of a tensor, so that Python can decide by it.
READING = {
    Tensor.__bool__, Tensor.__float__, Tensor.__int__, Tensor.__index__, Tensor.item,
    Tensor.is_nonzero,
}  # fmt: skip
# What makes a tensor that is written to later, perhaps with what differs from client to client.
MAKING = {
    torch.zeros, torch.ones, torch.full, torch.empty, torch.eye, torch.zeros_like,
    torch.ones_like, torch.full_like, torch.empty_like, Tensor.new_zeros, Tensor.new_ones,
    Tensor.new_full, Tensor.new_empty, Tensor.clone,
}  # fmt: skip


class UndecidedError(EngineError):
    """Clients that are mapped together would have to go different ways."""


class MapClients(Rewriting):
    """Functions in the form of this file, inside of `torch.func.vmap`.

    With `own`, whatever is made is made for each client, so that it can be written to; `decided`
    says whether Python went by values on which all clients agree.
    """

    def __init__(self, draws: Draws, own: Tensor | None = None) -> None:
        super().__init__(MAPPED, draws)
        self.own, self.decided = own, False

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if (maybe_current_level() or 0) > 1:  # in a transform of the network's own
            return func(*args, **kwargs)
        if func in READING and is_batchedtensor(args[0]):
            self.decided = True
            return func(_agreed(args[0]))
        if isinstance(out := kwargs.get("out"), Tensor):  # for which torch has no rules
            del kwargs["out"]
            return out.copy_(super().__torch_function__(func, types, args, kwargs))
        found = super().__torch_function__(func, types, args, kwargs)
        if self.own is not None and func in MAKING and not is_batchedtensor(found):
            return self.own.new_empty(found.shape, dtype=found.dtype).copy_(found)
        return found


def _agreed(tensor: Tensor) -> Tensor:
    """The one value that a number has for all clients."""
    each = get_unwrapped(tensor).movedim(maybe_get_bdim(tensor), 0)
    if not bool((each == each[:1]).all()):
        raise UndecidedError("clients do not agree on a value that the network goes by")
    return each[0]


class MapClients16(MapClients):
    """Also multiplies in bf16, as autocast does."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func in LOW or func in HIGH:
            dtype = torch.bfloat16 if func in LOW else torch.float32
            args = [_cast(arg, dtype) for arg in args]
            kwargs = {name: _cast(arg, dtype) for name, arg in (kwargs or {}).items()}
        return super().__torch_function__(func, types, args, kwargs)


def _cast(arg: Any, dtype: torch.dtype) -> Any:
    if isinstance(arg, list | tuple):
        return type(arg)(_cast(one, dtype) for one in arg)
    is_other = isinstance(arg, Tensor) and arg.is_floating_point() and arg.dtype != dtype
    return arg.to(dtype) if is_other else arg
