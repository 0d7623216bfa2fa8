"""FedYogi (arXiv:2003.00295): FedAdam with a second moment that changes additively."""

from __future__ import annotations

from sofa_fl.methods.baselines.fedadam import FedAdam
from sofa_fl.methods.config import FedOptConfig
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Vector


@register("fedyogi", "FedYogi", FedOptConfig, section="fedyogi")
class FedYogi(FedAdam):
    def second_moment(self, before: Vector, square: Vector) -> Vector:
        return before - (1 - self.config.beta2) * square * (before - square).sign()
