"""Recurrent layers step by step, and their dropout: what cuDNN's fused ones cannot map or share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sofa_fl.engine.draws import Draws, Replacement

States = tuple[Tensor, ...]  # of one layer: hidden, and for an LSTM its cells
Cell = Callable[[Tensor, States, Sequence[Tensor], bool], States]
Layer = Callable[[Tensor, States, Sequence[Tensor], bool], tuple[Tensor, States]]


def _lstm_cell(given: Tensor, states: States, weights: Sequence[Tensor], biased: bool) -> States:
    hidden, cells = states
    gates = given + functional.linear(hidden, weights[1], weights[3] if biased else None)
    enter, forget, new, leave = gates.chunk(4, dim=-1)
    cells = torch.sigmoid(forget) * cells + torch.sigmoid(enter) * torch.tanh(new)
    hidden = torch.sigmoid(leave) * torch.tanh(cells)
    if len(weights) == (5 if biased else 3):  # a projection
        hidden = functional.linear(hidden, weights[-1])
    return hidden, cells


def _gru_cell(given: Tensor, states: States, weights: Sequence[Tensor], biased: bool) -> States:
    (hidden,) = states
    old = functional.linear(hidden, weights[1], weights[3] if biased else None)
    (reset, update, new), (own_reset, own_update, own_new) = given.chunk(3, -1), old.chunk(3, -1)
    update = torch.sigmoid(update + own_update)
    new = torch.tanh(new + torch.sigmoid(reset + own_reset) * own_new)
    return (new + update * (hidden - new),)


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Cell:
    def cell(given: Tensor, states: States, weights: Sequence[Tensor], biased: bool) -> States:
        own = functional.linear(states[0], weights[1], weights[3] if biased else None)
        return (activation(given + own),)

    return cell


def _step_by_step(cell: Cell, biased: bool) -> Layer:
    """A layer as a loop over time; what is not recurrent is one product for all times."""

    def layer(
        x: Tensor, states: States, weights: Sequence[Tensor], backwards: bool
    ) -> tuple[Tensor, States]:
        given = functional.linear(x, weights[0], weights[2] if biased else None).unbind(0)
        outs = []
        for one in reversed(given) if backwards else given:
            states = cell(one, states, weights, biased)
            outs.append(states[0])
        return torch.stack(outs[::-1] if backwards else outs), states

    return layer


@contextmanager
def _without_warning() -> Iterator[None]:
    """The weights of a layer are a part of those that torch has laid out for cuDNN."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of")
        yield


def _by_torch(function: Any, biased: bool, training: bool) -> Layer:
    """A layer as torch has it, one at a time."""

    def layer(
        x: Tensor, states: States, weights: Sequence[Tensor], backwards: bool
    ) -> tuple[Tensor, States]:
        start = tuple(state[None] for state in states)
        given = x.flip(0) if backwards else x
        with _without_warning() if x.is_cuda else nullcontext():
            out, *last = function(
                given,
                start if len(start) > 1 else start[0],
                weights,
                biased,
                1,
                0.0,
                training,
                False,
                False,
            )
        return out.flip(0) if backwards else out, tuple(state[0] for state in last)

    return layer


def _layers(
    draws: Draws,
    layer: Layer,
    x: Tensor,
    start: States,
    weights: Sequence[Tensor],
    num_layers: int,
    dropout: float,
    both_ways: bool,
) -> tuple[Tensor, list[States]]:
    ways = 2 if both_ways else 1
    size = len(weights) // (num_layers * ways)
    lasts = []
    for number in range(num_layers):
        outs = []
        for at in range(number * ways, (number + 1) * ways):
            own = weights[at * size : (at + 1) * size]
            out, last = layer(x, tuple(s[at] for s in start), own, at % ways == 1)
            outs.append(out)
            lasts.append(last)
        x = torch.cat(outs, dim=-1) if both_ways else outs[0]
        if dropout and number < num_layers - 1:
            x = functional.dropout(x, dropout)
    return x, lasts


def _own(function: Any, cell: Cell | None) -> Replacement:
    """`torch.lstm` and the like by a loop over a cell, or torch's with dropout of our own."""

    def own(draws: Draws, *args: Any) -> Any:
        if not isinstance(args[3], bool):  # sequences of different lengths, packed
            return NotImplemented
        x, start, weights, biased, num_layers, dropout, training, both_ways, batch_first = args
        dropout = dropout if training and num_layers > 1 else 0.0
        if cell is None and not dropout:
            return NotImplemented
        layer = _step_by_step(cell, biased) if cell else _by_torch(function, biased, training)
        starts = tuple(start) if isinstance(start, list | tuple) else (start,)
        if batch_first:
            x = x.transpose(0, 1)
        out, lasts = _layers(draws, layer, x, starts, weights, num_layers, dropout, both_ways)
        states = [torch.stack(kind) for kind in zip(*lasts)]
        return (out.transpose(0, 1) if batch_first else out, *states)

    return own


def lstm_cell(
    draws: Draws,
    input: Tensor,
    states: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> States:
    """As `torch.lstm_cell`: torch has no rule to map it."""
    given = functional.linear(input, w_ih, b_ih)
    biases = [] if b_ih is None or b_hh is None else [b_ih, b_hh]
    return _lstm_cell(given, (states[0], states[1]), [w_ih, w_hh, *biases], bool(biases))


CELLS: dict[Any, Cell] = {
    torch.lstm: _lstm_cell,
    torch.gru: _gru_cell,
    torch.rnn_tanh: _plain_cell(torch.tanh),
    torch.rnn_relu: _plain_cell(torch.relu),
}
RECURRENT = {function: _own(function, cell) for function, cell in CELLS.items()}
RECURRENT[torch.lstm_cell] = lstm_cell
RECURRENT_IF_DRAWING = {function: _own(function, None) for function in CELLS}
