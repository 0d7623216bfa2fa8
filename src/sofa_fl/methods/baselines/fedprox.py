"""FedProx (arXiv:1812.06127): FedAvg with a pull to the model that a client starts from."""

from __future__ import annotations

from dataclasses import dataclass

from sofa_fl.engine.base import Pull
from sofa_fl.methods.clustered import Clustered
from sofa_fl.methods.config import FedProxConfig
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import SharingConfig


@register("fedprox", "FedProx", FedProxConfig, section="fedprox")
@dataclass(frozen=True, slots=True)
class FedProx(Clustered):
    config: FedProxConfig
    sharing: SharingConfig

    def pulls(self, model: Vector) -> list[Pull]:
        return [Pull(model, self.config.pull / 2)]
