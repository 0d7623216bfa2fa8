"""Many networks of one kind as one: a tensor of theirs has a row per client.

Frozen parameters have no rows: all clients of all stacks use the same.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sofa_fl.engine.draws import DRAWING, Draws, Rewriting
from sofa_fl.engine.mapping import MAPPED, Mapping16, apart
from sofa_fl.engine.stacking import stack_layers
from sofa_fl.models.flat import FlatNetwork, Vector, empty_like


class MakeStack(Protocol):
    def __call__(self, flat: FlatNetwork, num: int) -> Stack: ...


class Stack:
    """`num` networks of one kind; `tensors` has theirs by name, with a first dimension of `num`."""

    def __init__(
        self, flat: FlatNetwork, num: int, network: nn.Module, tensors: dict[str, Tensor]
    ) -> None:
        self.num, self.size, self.network, self.tensors = num, flat.size, network, tensors
        self.places, self.num_trainable = flat.places, flat.num_trainable
        self.weights = [tensor for tensor in tensors.values() if tensor.requires_grad]
        self.seeds = torch.zeros(num, dtype=torch.int64, device=flat.device)
        self.step = torch.zeros((), dtype=torch.int64, device=flat.device)
        # All clients of a stack are at the same step, so they can share what counts steps.
        buffers = dict(network.named_buffers())
        self.counts = [(buffers[n], first) for n, first in flat.counts.items() if n in buffers]

    @torch.no_grad()
    def load(self, rows: Tensor, seeds: Sequence[int] = ()) -> None:
        """Client `i` becomes `rows[i]`, at its first step, and draws by `seeds[i]`."""
        for name, piece in self.places.items():
            tensor = self.tensors[name]
            tensor.copy_(rows[:, piece].view(tensor.shape))
        for count, first in self.counts:
            count.copy_(first)
        self.step.zero_()
        if seeds:
            self.seeds.copy_(torch.tensor(seeds, dtype=torch.int64), non_blocking=True)

    @torch.no_grad()
    def unload(self) -> list[Vector]:
        """All networks as vectors, each in memory of its own: rows would keep each other alive."""
        each = [self.tensors[name].reshape(self.num, -1) for name in self.places]
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
        out = self._outputs(x, training, bf16)
        if training:
            self.step += 1
        return out

    def _outputs(self, x: Tensor, training: bool, bf16: bool) -> Tensor:
        raise NotImplementedError


def _copy(flat: FlatNetwork) -> nn.Module:
    """The network again, with the same frozen parameters: all stacks share them."""
    return copy.deepcopy(flat.network, {id(p): p for p in flat.frozen.values()})


class LayerStack(Stack):
    """The network's own `forward` over all samples at once, with layers of many networks in it."""

    def __init__(self, flat: FlatNetwork, num: int) -> None:
        network = stack_layers(_copy(flat), num).to(flat.device)
        named = dict(network.named_parameters()) | dict(network.named_buffers())
        super().__init__(flat, num, network, {name: named[name] for name in flat.places})

    def _outputs(self, x: Tensor, training: bool, bf16: bool) -> Tensor:
        given = x.bfloat16() if bf16 else x
        if not training:
            outputs: Tensor = self.network(given)
            return outputs.float()
        with Rewriting(DRAWING, Draws.at(self.seeds, self.step)):
            outputs = self.network(given)
        return outputs.float()


class MappedStack(Stack):
    """Any network, mapped over the clients by `torch.func`."""

    def __init__(self, flat: FlatNetwork, num: int) -> None:
        tensors = {
            name: tensor.new_empty(num, *tensor.shape).requires_grad_(tensor.requires_grad)
            for name, tensor in flat.tensors.items()
        }
        network = _copy(flat)
        for module in network.modules():
            if isinstance(module, nn.RNNBase):  # lays out what is loaded for cuDNN, unless told not
                module.flatten_parameters = lambda: None  # type: ignore[method-assign]
        super().__init__(flat, num, network, tensors)
        self.buffers = [n for n, _ in network.named_buffers() if n in tensors]

    def _outputs(self, x: Tensor, training: bool, bf16: bool) -> Tensor:
        rewriting = Mapping16 if bf16 else Rewriting

        def one(tensors: dict[str, Tensor], seed: Tensor, own: Tensor) -> Any:
            given = dict(tensors)
            draws = Draws.at(seed, self.step) if training else Draws(None)
            with rewriting(MAPPED, draws):
                out = torch.func.functional_call(self.network, given, (own,))
            return out.float(), {name: given[name] for name in self.buffers}

        each = apart(x, self.num)
        with warnings.catch_warnings():  # what torch maps by a loop is slower, but right
            warnings.filterwarnings("ignore", "There is a performance drop")
            out, after = torch.func.vmap(one)(self.tensors, self.seeds, each)
        if training:
            with torch.no_grad():
                for name, value in after.items():
                    if value is not self.tensors[name]:
                        self.tensors[name].copy_(value)
        return out.flatten(0, 1)  # type: ignore[no-any-return]
