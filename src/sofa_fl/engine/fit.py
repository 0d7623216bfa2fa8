"""Whether a network takes the data and can be trained on them: tried once, said in one sentence."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sofa_fl.engine.attention import ATTENTION_IF_DRAWING
from sofa_fl.engine.drawing import DRAWING
from sofa_fl.engine.draws import Draws, Rewriting
from sofa_fl.engine.recurrent import RECURRENT_IF_DRAWING
from sofa_fl.errors import ModelError
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.frozen import let_go
from sofa_fl.models.networks import naming, seeded

DRAWN = {**DRAWING, **ATTENTION_IF_DRAWING, **RECURRENT_IF_DRAWING}
SAMPLES = 8  # of the step that is tried, or a batch if that is smaller


@dataclass(frozen=True, slots=True)
class Habits:
    """What a network was seen to do; `draws_when_scored`: at random, in evaluation too."""

    num_outputs: int
    draws_when_scored: bool


def habits_of(flat: FlatNetwork, x: Tensor) -> Habits:
    """Score `x`; raise if the network cannot take it."""
    flat.network.eval()
    watch = _Watch(flat.device)
    shape = tuple(x.shape[1:])
    what = f"the network cannot take float32 inputs of shape {shape}"
    with _trying(flat), torch.no_grad(), naming(what):
        out = watch.during(lambda: flat.network(x))
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != len(x):
        raise ModelError(
            "the network must return one row of outputs per sample, a tensor of shape (samples, "
            f"outputs); for {len(x)} samples it returned {_described(out)}"
        )
    if not out.is_floating_point() or out.is_sparse:
        raise ModelError(f"the network must return float32 numbers, not {_described(out)}")
    return Habits(out.shape[1], watch.has_seen_draws)


def draws_backwards(flat: FlatNetwork, x: Tensor, num_outputs: int) -> bool:
    """Whether a network draws at random in its backward pass; raise if it cannot be trained.

    It does where a checkpoint computes a part of the forward pass again. After this no process
    can be forked that trains.
    """
    flat.network.train()
    watch = _Watch(flat.device)
    with _trying(flat), naming(f"the network cannot be trained on a batch of {len(x)}"):
        frozen = _frozen_numbers(flat)
        out = watch.during(lambda: flat.network(x))
        if not isinstance(out, Tensor) or out.shape != (len(x), num_outputs):
            raise ModelError(
                "the network must return the same kind of outputs in training as in evaluation, "
                f"{num_outputs} per sample; for {len(x)} samples it returned {_described(out)}"
            )
        if not out.requires_grad:
            raise ModelError(
                "the outputs of the network must depend on its parameters; in training they "
                "depend on none that requires a gradient"
            )
        if changed := [n for n, seen in _frozen_numbers(flat).items() if seen != frozen[n]]:
            let_go(flat.network)
            raise ModelError(
                "parameters that are not trained are the same for all clients, but the network "
                f"changes {changed[0]} when it is called; make it a buffer, which each client has "
                "for itself"
            )
        loss = out.float().square().mean()
        watch.during(lambda: _go_back(loss))
    return watch.has_seen_draws


def _frozen_numbers(flat: FlatNetwork) -> dict[str, tuple[int, int]]:
    """What tells whether frozen parameters were written to, by name."""
    return {name: (p._version, p.data_ptr()) for name, p in flat.frozen.items()}


@contextmanager
def _trying(flat: FlatNetwork) -> Iterator[None]:
    """What is done to the network in here is undone."""
    before = flat.vector
    with seeded(0, flat.device):
        yield
    flat.network.zero_grad(set_to_none=True)
    flat.load(before)


def _go_back(loss: Tensor) -> None:
    """As `torch.autograd.backward`, which a `Rewriting` would run outside of itself."""
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward((loss,), (torch.ones_like(loss),), False, False, (), True, True)


class _Watch:
    """Notices whether a function draws at random, in our way or in any other."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.has_seen_draws = device, False

    def during(self, function: Any) -> Any:
        draws = Draws.at(torch.tensor(0, device=self.device), 0)
        before = self._torchs(), python_generators()
        with Rewriting(DRAWN, draws):
            found = function()
        after = self._torchs(), python_generators()
        self.has_seen_draws = draws.count > 0 or before != after
        return found

    def _torchs(self) -> list[bytes]:
        """The states of torch's generators."""
        states = [torch.get_rng_state()]
        if self.device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self.device))
        return [bytes(state.numpy().data) for state in states]


def python_generators() -> tuple[object, ...]:
    """The states of NumPy's and Python's generators, which a network may draw from."""
    return repr(np.random.get_state(legacy=False)), random.getstate()  # noqa: NPY002


def _described(out: Any) -> str:
    if isinstance(out, Tensor):
        kind = "" if out.is_floating_point() else f" of type {str(out.dtype).split('.')[-1]}"
        return f"a {'sparse ' if out.is_sparse else ''}tensor{kind} of shape {tuple(out.shape)}"
    if out is None:
        return "None"
    return f"a {type(out).__name__}; return one of its tensors"
