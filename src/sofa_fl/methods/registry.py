"""The methods by name."""

from __future__ import annotations

from typing import Any, Protocol

from sofa_fl.methods.base import Method
from sofa_fl.methods.fedavg import FedAvg
from sofa_fl.methods.hypcluster import HypCluster, HypClusterConfig
from sofa_fl.methods.sofa import Sofa, SofaConfig
from sofa_fl.sharing import SharingConfig


class MethodSections(Protocol):
    """The parts of a configuration that methods read."""

    @property
    def method(self) -> str: ...
    @property
    def sharing(self) -> SharingConfig: ...
    @property
    def sofa(self) -> SofaConfig: ...
    @property
    def hypcluster(self) -> HypClusterConfig: ...


def make_method(config: MethodSections) -> Method[Any]:
    """The configured method."""
    match config.method:
        case "sofa":
            return Sofa(config.sofa, config.sharing)
        case "fedavg":
            return FedAvg(config.sharing)
        case "hypcluster":
            return HypCluster(config.hypcluster, config.sharing)
        case name:
            raise KeyError(name)
