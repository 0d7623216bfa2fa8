"""The outputs of a model for samples: preprocessing, scaling, network, and class mix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sofa_fl.data.federated_data import Samples
from sofa_fl.data.preprocess import Preprocessing, TargetScaling
from sofa_fl.engine.base import Prior
from sofa_fl.federation import Federation
from sofa_fl.models.flat import Model, as_vector
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import NetworkFactory, build, seeded

PORTION = 1000  # samples at a time


class RawRows(nn.Module):
    """What `Preprocessing.apply` does, with the same numbers, as part of a network."""

    mean: Tensor
    std: Tensor

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.columns = preprocessing.columns
        # Without a table, inputs have the shape of raw rows.
        shape = (-1,) if self.columns else preprocessing.shape
        std = preprocessing.std or [1.0] * len(preprocessing.mean)
        self.is_standardized = bool(preprocessing.std)
        for name, values in (("mean", preprocessing.mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64).reshape(shape))

    def forward(self, x: Tensor) -> Tensor:
        inputs = self.encode(x).double()
        inputs = torch.where(torch.isnan(inputs), self.mean, inputs)
        if self.is_standardized:
            inputs = (inputs - self.mean) / self.std
        return inputs.float()

    def encode(self, x: Tensor) -> Tensor:
        """An input per value of a category, as `encode` does it for arrays."""
        if not self.columns:
            return x
        parts = [
            (x[:, at : at + 1] == torch.tensor(column.values, dtype=torch.float32)).float()
            if column.values
            else x[:, at : at + 1]
            for at, column in enumerate(self.columns)
        ]
        return torch.cat(parts, dim=1)


class Whole(nn.Module):
    """A network that sees `x * scale + shift`, and to whose outputs `prior` is added.

    With `preprocessing`, `x` are raw rows; with `targets`, outputs are in the targets' own units.
    """

    prior: Tensor
    target_mean: Tensor
    target_std: Tensor

    def __init__(
        self,
        network: nn.Module,
        scale: float,
        shift: float,
        prior: Sequence[float],
        preprocessing: Preprocessing | None = None,
        targets: TargetScaling | None = None,
    ) -> None:
        super().__init__()
        self.network, self.scale, self.shift = network, scale, shift
        self.raw = nn.Identity() if preprocessing is None else RawRows(preprocessing)
        self.register_buffer("prior", torch.tensor(prior, dtype=torch.float32))
        self.is_scaled = targets is not None
        mean, std = ((), ()) if targets is None else (targets.mean, targets.std)
        for name, values in (("target_mean", mean), ("target_std", std)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        x = self.raw(x)
        if self.scale != 1.0 or self.shift != 0.0:
            x = x * self.scale + self.shift
        out: Tensor = self.network(x)
        if len(self.prior):  # further outputs get nothing added
            rest = out.shape[1] - len(self.prior)
            out = out + nn.functional.pad(self.prior, (0, rest))
        if self.is_scaled:
            out = (out.double() * self.target_std + self.target_mean).float()
        return out


@torch.no_grad()
def outputs_of(whole: Whole, x: NDArray[Any], device: str = "cpu") -> NDArray[np.float32]:
    """Compute one row of outputs per input; a network that draws at random draws the same."""
    whole.to(device).eval()
    parts = torch.split(torch.from_numpy(x.astype(np.float32)), PORTION)
    with seeded(0, torch.device(device)):
        return np.concatenate([whole(part.to(device)).float().cpu().numpy() for part in parts])


class ClientOutputs:
    """Computes the outputs of models for test samples, in the main process and one by one."""

    def __init__(self, factory: NetworkFactory) -> None:
        self._factory = factory
        self._flat: FlatNetwork | None = None

    def __call__(
        self, model: Model, rows: Samples, prior: Prior | None, fed: Federation
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Outputs and targets; in regression of one shape, and in the targets' own units."""
        vector, test, scaling = as_vector(model), fed.data.test, fed.data.target_scaling
        if self._flat is None:
            self._flat = FlatNetwork(build(self._factory, 0), vector.device)
        self._flat.load(vector)
        added = [] if prior is None else prior.tolist()
        whole = Whole(self._flat.network, test.scale, test.shift, added, targets=scaling)
        outputs, targets = outputs_of(whole, test.x[rows], str(vector.device)), test.y[rows]
        if targets.dtype.kind != "f":
            return outputs, targets
        outputs = outputs.reshape(targets.shape)
        return outputs, targets if scaling is None else scaling.undo(targets)
