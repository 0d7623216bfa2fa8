"""The methods by name."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from sofa_fl.methods.base import Method
from sofa_fl.methods.baselines.cfl import Cfl, CflConfig
from sofa_fl.methods.baselines.ditto import Ditto, DittoConfig
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.baselines.fedavg_ft import FedAvgFt
from sofa_fl.methods.baselines.feddrift import FedDrift, FedDriftConfig
from sofa_fl.methods.baselines.fedprox import FedProx, FedProxConfig
from sofa_fl.methods.baselines.fl_hc import FlHc, FlHcConfig
from sofa_fl.methods.baselines.hierfavg import HierFavg, HierFavgConfig
from sofa_fl.methods.baselines.hypcluster import HypCluster, HypClusterConfig
from sofa_fl.methods.baselines.local import Local
from sofa_fl.methods.baselines.oracle import Oracle, OracleConfig
from sofa_fl.methods.baselines.regroup import Regroup
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.sofa import Sofa
from sofa_fl.sharing import SharingConfig

MethodName = Literal[
    "sofa",
    "local",
    "fedavg",
    "fedavg_ft",
    "fedprox",
    "ditto",
    "hypcluster",
    "cfl",
    "fl_hc",
    "hierfavg",
    "oracle",
    "feddrift",
    "regroup",
]


class MethodSections(Protocol):
    """The parts of a configuration that methods read."""

    @property
    def method(self) -> MethodName: ...
    @property
    def sharing(self) -> SharingConfig: ...
    @property
    def sofa(self) -> SofaConfig: ...
    @property
    def hypcluster(self) -> HypClusterConfig: ...
    @property
    def fedprox(self) -> FedProxConfig: ...
    @property
    def ditto(self) -> DittoConfig: ...
    @property
    def cfl(self) -> CflConfig: ...
    @property
    def fl_hc(self) -> FlHcConfig: ...
    @property
    def hierfavg(self) -> HierFavgConfig: ...
    @property
    def oracle(self) -> OracleConfig: ...
    @property
    def feddrift(self) -> FedDriftConfig: ...


def make_method(config: MethodSections) -> Method[Any]:
    """The configured method."""
    match config.method:
        case "sofa":
            return Sofa(config.sofa, config.sharing)
        case "fedavg":
            return FedAvg(config.sharing)
        case "fedavg_ft":
            return FedAvgFt(config.sharing)
        case "fedprox":
            return FedProx(config.fedprox, config.sharing)
        case "ditto":
            return Ditto(config.ditto, config.sharing)
        case "local":
            return Local(config.sharing)
        case "hypcluster":
            return HypCluster(config.hypcluster, config.sharing)
        case "cfl":
            return Cfl(config.cfl, config.sharing)
        case "fl_hc":
            return FlHc(config.fl_hc, config.sharing)
        case "hierfavg":
            return HierFavg(config.hierfavg, config.sharing)
        case "oracle":
            return Oracle(config.oracle, config.sharing)
        case "feddrift":
            return FedDrift(config.feddrift, config.sharing)
        case "regroup":
            return Regroup(config.sofa, config.sharing)
