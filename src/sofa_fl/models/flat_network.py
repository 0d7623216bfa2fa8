"""A network as one flat vector: trainable parameters first, then float buffers.

Frozen parameters are no part of it: they are the same for all. Nor are buffers of which no mean
could be taken (`is_averaged`; BatchNorm counts its batches in one). What else a network keeps, such
as a hidden state, a counter or a cache, is put back before a vector is loaded (`Kept`).
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sofa_fl.errors import ModelError
from sofa_fl.models.flat import Vector, check_size, new_vector
from sofa_fl.models.frozen import frozen_of, hold
from sofa_fl.models.networks import Home

INTERNAL = frozenset(vars(nn.Module()))  # what torch itself keeps in a module
SCALARS = (type(None), bool, int, float, complex, str, bytes)
CONTAINERS = (list, tuple, dict, set, deque)


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
        out = new_vector(self.size, self.device)
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
        parts = torch.split(vector, [weight.numel() for weight in self.weights])
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

        return {n: read(t) for n, t in self.network.state_dict(keep_vars=True).items()}


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


@dataclass(slots=True)
class _Entry:
    """One attribute: where it is, what it was at first, and how to see that it has changed."""

    place: dict[str, Any]
    name: str
    value: Any
    signature: Any
    first: Any  # a copy of the value, where it can be changed in place and has memory of its own


class Kept:
    """What a network keeps, as it was when this was made; `but` are buffers of its model."""

    def __init__(self, network: nn.Module, but: Collection[str] = ()) -> None:
        self.entries: list[_Entry] = []
        self.names: list[tuple[dict[str, Any], frozenset[str]]] = []
        buffers = {id(b): b for name, b in network.named_buffers() if name in but}
        held = {_storage(tensor) for tensor in (*network.parameters(), *buffers.values())}
        for module in network.modules():
            for place, skipped in ((vars(module), INTERNAL), (module._buffers, frozenset[str]())):
                if not isinstance(place, dict):  # a compiled module shows a view of its own
                    continue
                self.names.append((place, frozenset(place) | skipped))
                for name, value in place.items():
                    if name in skipped or not is_plain(value) or id(value) in buffers:
                        continue
                    if isinstance(value, Tensor) and value.grad_fn is not None:
                        value = place[name] = value.detach()  # computed of parameters, and will be
                    is_alias = isinstance(value, Tensor) and _storage(value) in held
                    first = value if is_alias or isinstance(value, SCALARS) else _copied(value)
                    self.entries.append(_Entry(place, name, value, _signature(value), first))

    @property
    def scalars(self) -> list[Any]:
        """Numbers, words and the like as they are now, such as a counter of calls."""
        now = [entry.place.get(entry.name) for entry in self.entries]
        return [value if isinstance(value, SCALARS) else None for value in now]

    @property
    def has_left_tensors(self) -> bool:
        """Whether tensors, or containers of them, were kept that were not there at first."""
        places = [(entry.place, entry.name) for entry in self._changed()]
        left = [place.get(name) for place, name in (*places, *self._added())]
        return any(not isinstance(value, SCALARS) for value in left)

    def forget(self) -> None:
        """Put back what was replaced, but numbers; tensors that were written to stay as they are.

        After a call that was made for many clients at once, what it has left is no one's.
        """
        for entry in self._changed():
            now = entry.place.get(entry.name)
            is_counted = isinstance(now, SCALARS) and isinstance(entry.value, SCALARS)
            if not is_counted and not (now is entry.value and isinstance(now, Tensor)):
                self._put_back(entry)
        self._drop_added()

    @torch.no_grad()
    def restore(self, *, always: bool = False) -> None:
        """Put everything back; `always`: also what a replayed graph writes to without a trace."""
        for entry in self.entries if always else self._changed():
            self._put_back(entry)
        self._drop_added()

    def _put_back(self, entry: _Entry) -> None:
        _put_back(entry.value, entry.first)
        entry.place[entry.name] = entry.value
        entry.signature = _signature(entry.value)

    def _drop_added(self) -> None:
        for place, name in self._added():
            del place[name]

    def _changed(self) -> list[_Entry]:
        return [
            entry
            for entry in self.entries
            if entry.place.get(entry.name, self) is not entry.value
            or (entry.value is not entry.first and _signature(entry.value) != entry.signature)
        ]

    def _added(self) -> list[tuple[dict[str, Any], str]]:
        added = ((place, name) for place, names in self.names for name in place.keys() - names)
        return [(place, name) for place, name in added if is_plain(place[name])]


def is_plain(value: Any) -> bool:
    """Whether a value is data through and through: no module, parameter or object of a class."""
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(each) for key, each in value.items())
    if isinstance(value, CONTAINERS):
        return all(is_plain(each) for each in value)
    return isinstance(value, (*SCALARS, Tensor)) and not isinstance(value, nn.Parameter)


def _storage(tensor: Tensor) -> int:
    """Which memory a tensor is on; a negative number if it has none."""
    is_dense = tensor.layout == torch.strided and tensor.numel()
    return tensor.untyped_storage().data_ptr() if is_dense else -id(tensor)


def _signature(value: Any) -> Any:
    """Differs once a value was changed in place; the value itself must not be gone by then."""
    if isinstance(value, Tensor):
        return id(value), 0 if value.is_inference() else value._version
    if isinstance(value, dict):
        return id(value), tuple((key, _signature(each)) for key, each in value.items())
    if isinstance(value, CONTAINERS):
        return id(value), tuple(map(_signature, value))
    return value


def _copied(value: Any) -> Any:
    """A copy that shares nothing which can be changed, without the history of tensors."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict | list | deque):
        made = copy.copy(value)
        for at, each in value.items() if isinstance(value, dict) else enumerate(value):
            made[at] = _copied(each)
        return made
    if type(value) is tuple:
        return tuple(map(_copied, value))
    return copy.copy(value)


def _put_back(value: Any, first: Any) -> None:
    """Give a value that was changed in place the content it had at first."""
    if value is first:
        return
    if isinstance(value, Tensor):
        with suppress(RuntimeError):  # memory that cannot be written to was not
            value.copy_(first)
    elif isinstance(value, dict | set):
        value.clear()
        value.update(_copied(first))
    elif isinstance(value, list | deque):
        value.clear()
        value.extend(_copied(first))
