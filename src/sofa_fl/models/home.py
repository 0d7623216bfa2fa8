"""Where tensors lie that a network makes in a call without saying where."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch

from sofa_fl.errors import ModelError, release

T = TypeVar("T")


class Home:
    """On the CPU, as ever; but if a network then fails on a GPU, there.

    `torch.zeros(3)` in a `forward` is no fault on a CPU, and anywhere else it is. It is not put
    on the GPU for all: many networks make small tensors to read numbers off them.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.is_default = device, False

    def __call__(self) -> AbstractContextManager[object]:
        """What is around every call of the network, and around its backward pass."""
        return self.device if self.is_default else nullcontext()

    def trying(self, call: Callable[[], T]) -> T:
        """What `call` returns, here or there; its first error if it fails both times."""
        try:
            with self():
                return call()
        except ModelError as error:
            if self.is_default or self.device.type == "cpu":
                raise
            first = error
            release(error)
        self.is_default = True
        try:
            with self():
                return call()
        except ModelError:
            self.is_default = False
            raise first from None
