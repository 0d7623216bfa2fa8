"""Many networks of one kind as one: a tensor of theirs has a row per client.

Frozen parameters have no rows: all clients of all stacks use the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor, nn
from torch._C import _functorch

from sofa_fl.engine.drawing import DRAWING
from sofa_fl.engine.draws import Draws, Rewriting
from sofa_fl.engine.map_clients import READING, MapClients, MapClients16, UndecidedError
from sofa_fl.engine.mapping import apart
from sofa_fl.engine.stacking import Stacked, StackedMaxPool, stack_layers
from sofa_fl.models.flat import Vector, empty_like
from sofa_fl.models.flat_network import FlatNetwork, Kept
from sofa_fl.models.networks import Cnn, Mlp


class MakeStack(Protocol):
    def __call__(self, flat: FlatNetwork, num: int) -> Stack: ...


class Stack:
    """`num` networks of one kind; `tensors` has theirs by name, with a first dimension of `num`.

    Attributes:
        decided: The network went by values on which all clients agreed; the next may not.
    """

    decided = False

    def __init__(
        self, flat: FlatNetwork, num: int, network: nn.Module, tensors: dict[str, Tensor]
    ) -> None:
        self.num, self.size, self.network, self.tensors = num, flat.size, network, tensors
        self.places, self.num_trainable = flat.places, flat.num_trainable
        self.home = flat.home
        self.weights = [tensor for tensor in tensors.values() if tensor.requires_grad]
        self.seeds = torch.zeros(num, dtype=torch.int64, device=flat.device)
        self.step = torch.zeros((), dtype=torch.int64, device=flat.device)
        # All clients of a stack are at the same step, so they can share what counts steps.
        self.kept = Kept(network, but=self.places)

    @torch.no_grad()
    def load(self, rows: Tensor, seeds: Sequence[int] = ()) -> None:
        """Client `i` becomes `rows[i]`, at its first step, and draws by `seeds[i]`."""
        for name, piece in self.places.items():
            tensor = self.tensors[name]
            tensor.copy_(rows[:, piece].view(tensor.shape))
        self.kept.restore(always=True)
        self.step.zero_()
        if seeds:
            self.seeds.copy_(torch.tensor(seeds, dtype=torch.int64), non_blocking=True)

    @torch.no_grad()
    def unload(self) -> list[Vector]:
        """All networks as vectors, each in memory of its own: rows would keep each other alive."""
        each = [self.tensors[name].reshape(self.num, -1).float() for name in self.places]
        rows = list(torch.cat(each, dim=1))
        vectors = [empty_like(row) for row in rows]
        torch._foreach_copy_(vectors, rows)
        return vectors

    def trainable(self, rows: Tensor) -> list[Tensor]:
        """`(num, numbers)` of the trainable weights, by weight and in its shape."""
        sizes = [weight[0].numel() for weight in self.weights]
        return [p.view(w.shape) for p, w in zip(torch.split(rows, sizes, dim=1), self.weights)]

    def forward(self, x: Tensor, *, training: bool, bf16: bool = False) -> Tensor:
        """Outputs for all clients' samples, which lie one after the other."""
        self.network.train(training)
        if not training:
            self.kept.restore()
        with self.home():
            out = self._outputs(x, training, bf16)
        self.kept.forget()
        if training:
            self.step += 1
        return out

    def _outputs(self, x: Tensor, training: bool, bf16: bool) -> Tensor:
        raise NotImplementedError


def _copy(flat: FlatNetwork) -> nn.Module:
    """The network again, with the same frozen parameters: all stacks share them."""
    flat.kept.restore()
    return copy.deepcopy(flat.network, {id(p): p for p in flat.frozen.values()})


def _undecided(_draws: Draws, *_args: Any, **_options: Any) -> NoReturn:
    raise UndecidedError("a value of all clients' samples is no value of one client")


BY_LAYER = {**DRAWING, **dict.fromkeys((*READING, Tensor.tolist), _undecided)}


# Modules that neither draw nor look at values when they are scored.
PLAIN = {nn.Sequential, nn.Identity, nn.Flatten, nn.ReLU, nn.Dropout, StackedMaxPool, Cnn, Mlp}


class LayerStack(Stack):
    """The network's own `forward` over all samples at once, with layers of many networks in it."""

    def __init__(self, flat: FlatNetwork, num: int) -> None:
        network = stack_layers(_copy(flat), num).to(flat.device)
        kinds = {type(module) for module in network.modules() if not isinstance(module, Stacked)}
        self.is_plain = kinds <= PLAIN
        named = dict(network.named_parameters()) | dict(network.named_buffers())
        super().__init__(flat, num, network, {name: named[name] for name in flat.places})

    def _outputs(self, x: Tensor, training: bool, bf16: bool) -> Tensor:
        draws = Draws.at(self.seeds, self.step) if training else Draws(None)
        is_sure = self.is_plain and not training  # to look at every call takes as long as the calls
        with nullcontext() if is_sure else Rewriting(BY_LAYER, draws):
            outputs: Tensor = self.network(x.bfloat16() if bf16 else x)
        return outputs.float()


class MappedStack(Stack):
    """Any network, mapped over the clients by `torch.func`.

    With `own`, each client has its own of what is no part of a model and of what is made in a
    call, so that a network can write to it what differs from client to client.
    """

    def __init__(self, flat: FlatNetwork, num: int, *, own: bool = False) -> None:
        network, self.own = _copy(flat), own
        tensors = {
            name: tensor.new_empty(num, *tensor.shape).requires_grad_(tensor.requires_grad)
            for name, tensor in flat.tensors.items()
        }
        for module in network.modules():
            if isinstance(module, nn.RNNBase):  # lays out what is loaded for cuDNN, unless told not
                module.flatten_parameters = lambda: None  # type: ignore[method-assign]
        super().__init__(flat, num, network, tensors)
        buffers = dict(network.named_buffers())
        self.first = {n: b.clone() for n, b in buffers.items() if own and n not in tensors}
        self.others = {n: b.new_empty(num, *b.shape) for n, b in self.first.items()}
        self.buffers = [name for name in buffers if name in tensors or name in self.others]

    @torch.no_grad()
    def load(self, rows: Tensor, seeds: Sequence[int] = ()) -> None:
        super().load(rows, seeds)
        self._begin_others()

    def _begin_others(self) -> None:
        for name, tensor in self.others.items():
            tensor.copy_(self.first[name].expand_as(tensor))

    def _outputs(self, x: Tensor, training: bool, bf16: bool) -> Tensor:
        clients = MapClients16 if bf16 else MapClients
        if not training:
            self._begin_others()
        tensors = {**self.tensors, **self.others}

        def one(tensors: dict[str, Tensor], seed: Tensor, own: Tensor) -> Any:
            given = dict(tensors)
            draws = Draws.at(seed, self.step) if training else Draws(None)
            with clients(draws, seed if self.own else None) as mode:
                out = torch.func.functional_call(self.network, given, (own,))
            self.decided |= mode.decided
            return out.float(), {name: given[name] for name in self.buffers}

        with without_warning():
            out, after = torch.func.vmap(one)(tensors, self.seeds, apart(x, self.num))
        if training:
            with torch.no_grad():
                for name, value in after.items():
                    if value is not tensors[name]:
                        tensors[name].copy_(value)
        return out.flatten(0, 1)  # type: ignore[no-any-return]


@contextmanager
def without_warning() -> Iterator[None]:
    """What torch maps by a loop is slower, but right.

    Python's filters would do, but to change them makes every other warning appear again.
    """
    enable = _functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]
    enable(False)
    try:
        yield
    finally:
        enable(True)
