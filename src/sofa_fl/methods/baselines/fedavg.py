"""FedAvg (arXiv:1602.05629): one model, the mean of the clients' every round."""

from __future__ import annotations

from dataclasses import dataclass

from sofa_fl.methods.clustered import Clustered
from sofa_fl.methods.registry import register
from sofa_fl.sharing import SharingConfig


@register("fedavg", "FedAvg")
@dataclass(frozen=True, slots=True)
class FedAvg(Clustered):
    sharing: SharingConfig
