"""FedProx (arXiv:1812.06127): FedAvg with a pull to the model that a client starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from sofa_fl.engine.base import Pull
from sofa_fl.methods.clustered import Clustered
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import SharingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class FedProxConfig:
    """How strongly a client is pulled to the global model.

    Attributes:
        pull: Weight of half the squared distance to the global model (mu).
    """

    pull: Annotated[float, Ge(0)] = 0.01


@register("fedprox", "FedProx", FedProxConfig, section="fedprox")
@dataclass(frozen=True, slots=True)
class FedProx(Clustered):
    config: FedProxConfig
    sharing: SharingConfig

    def pulls(self, model: Vector) -> list[Pull]:
        return [Pull(model, self.config.pull / 2)]
