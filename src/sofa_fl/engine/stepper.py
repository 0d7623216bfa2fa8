"""One optimizer step that trains a whole stack, captured on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sofa_fl.engine.base import LocalConfig
from sofa_fl.engine.capture import record_graph
from sofa_fl.engine.learner import EachLoss, Store, gradient_of, optimizer_for
from sofa_fl.engine.stack import Stack


@dataclass(frozen=True, slots=True)
class Pulls:
    """What a captured step must know of its clients' pulls: the weight decay they agree on.

    It is the optimizer's to do; where clients `differ`, all of it is done apart, since a step
    that depended on their numbers would have to be captured anew with every change of the tree.
    """

    some: bool = False
    decay: float = 0.0
    differ: bool = False

    @classmethod
    def of(cls, decays: Sequence[float], *, vary: bool = False) -> Pulls:
        """Those of clients with these decays; `vary`: the next ones may well have another."""
        if len(set(decays)) == 1 and not vary:
            return cls(True, decays[0])
        return cls(bool(decays), differ=bool(decays))


class Stepper:
    """One optimizer step of a whole stack; on a GPU captured once and replayed.

    A step is some eighty small kernels, and for few clients it would take longer to launch them
    than to run them. A captured step reads its batch, and writes its losses, at fixed places.
    """

    def __init__(
        self,
        stack: Stack,
        store: Store,
        loss: EachLoss,
        local: LocalConfig,
        pulls: Pulls,
        num_outputs: int,
        span: slice,
    ) -> None:
        self.stack, self.store, self.loss, self.pulls = stack, store, loss, pulls
        self.span, self.trained = span, stack.weights[span]  # the rest is not touched
        device = stack.weights[0].device
        self.rows = torch.zeros(stack.num * local.batch_size, dtype=torch.int64, device=device)
        self.losses = torch.zeros(stack.num, device=device)
        self.constants = [torch.zeros_like(w) for w in self.trained] if pulls.some else []
        self.decay = torch.zeros(stack.num, device=device)
        self.offsets = torch.zeros(stack.num, num_outputs, device=device)
        self.learning_rate = local.learning_rate
        self.rate = torch.tensor(local.learning_rate, device=device)
        self.optimizer = optimizer_for(self.trained, local, pulls.decay)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate  # a captured step reads it where it is
        self.bf16 = local.precision == "bf16"
        self.graph: torch.cuda.CUDAGraph | None = None
        self.why_not = ""  # there is no graph, where there could be one
        if device.type == "cuda":
            self.capture()

    def begin(
        self,
        rows: Tensor,
        seeds: Sequence[int],
        decays: Sequence[float],
        constants: Tensor | None,
        offsets: Tensor,
        learning_rate: float | None,
    ) -> None:
        """Start again from models, the rows, pulled by decays and constants (see `pull_terms`)."""
        self.stack.load(rows, seeds)
        self.offsets.copy_(offsets)
        self.rate.fill_(self.learning_rate if learning_rate is None else learning_rate)
        for state in self.optimizer.state.values():
            for value in state.values():  # the moments, and how many steps there were
                value.zero_()
        if constants is not None:
            self.decay.copy_(torch.tensor(decays), non_blocking=True)
            new = self.stack.trainable(constants)[self.span]
            for constant, value in zip(self.constants, new):
                constant.copy_(value)

    def __call__(self, rows: Tensor) -> Tensor:
        """Train on these rows, `batch_size` per client; every client's loss, until the next."""
        self.rows.copy_(rows)
        if self.graph is None:
            self.step()
        else:
            self.graph.replay()
        return self.losses

    def step(self) -> None:
        for weight in self.stack.weights:
            weight.grad = None
        x, y = self.store.batch(self.rows)
        out = self.stack.forward(x, training=True, bf16=self.bf16)
        out = (out.view(self.stack.num, -1, out.shape[1]) + self.offsets[:, None]).view(out.shape)
        each = self.loss(out, y)
        losses = each.view(self.stack.num, -1).mean(dim=1)
        with self.stack.home():
            torch.autograd.backward(losses.sum())
        gradients = [gradient_of(weight) for weight in self.trained]
        if self.pulls.some:
            torch._foreach_add_(gradients, self.constants)  # on a GPU, few kernels for all
        if self.pulls.differ:
            for weight, gradient in zip(self.trained, gradients):
                decay = self.decay.view(-1, *[1] * (weight.ndim - 1))
                gradient.addcmul_(decay, weight.detach())
        self.optimizer.step()
        self.losses.copy_(losses.detach())

    def capture(self) -> None:
        """Record a step, unless the network waits for the GPU in it or counts its calls.

        Then it is run as it is: in a recorded step, numbers of Python's stay what they were.
        """
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):  # what is compiled or allocated once must be before
                self.step()
        torch.cuda.current_stream().wait_stream(aside)
        counted = self.stack.kept.scalars
        recorded = record_graph(self.step)
        if isinstance(recorded, str):
            self.why_not = recorded
        elif self.stack.kept.scalars != counted:
            self.why_not = "the network counts its calls"
        else:
            self.graph = recorded
