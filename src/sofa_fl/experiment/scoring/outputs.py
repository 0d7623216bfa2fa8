"""The outputs of a model for samples: scaling, network, and class mix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

PORTION = 1000  # samples at a time


class Whole(nn.Module):
    """A network that sees `x * scale + shift`, and to whose outputs `prior` is added."""

    prior: Tensor

    def __init__(
        self, network: nn.Module, scale: float, shift: float, prior: Sequence[float]
    ) -> None:
        super().__init__()
        self.network, self.scale, self.shift = network, scale, shift
        self.register_buffer("prior", torch.tensor(prior, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        if self.scale != 1.0 or self.shift != 0.0:
            x = x * self.scale + self.shift
        out: Tensor = self.network(x)
        if len(self.prior):  # further outputs get nothing added
            rest = out.shape[1] - len(self.prior)
            out = out + nn.functional.pad(self.prior, (0, rest))
        return out


@torch.no_grad()
def outputs_of(whole: Whole, x: NDArray[Any], device: str = "cpu") -> NDArray[np.float32]:
    """Compute one row of outputs per input."""
    whole.to(device).eval()
    parts = torch.split(torch.from_numpy(x.astype(np.float32)), PORTION)
    return np.concatenate([whole(part.to(device)).cpu().numpy() for part in parts])
