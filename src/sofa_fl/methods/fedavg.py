"""FedAvg (arXiv:1602.05629): one model, the mean of the clients' every round."""

from __future__ import annotations

from sofa_fl.methods.hypcluster import HypCluster, HypClusterConfig
from sofa_fl.sharing import SharingConfig


class FedAvg(HypCluster):
    """HypCluster with a single cluster."""

    def __init__(self, sharing: SharingConfig) -> None:
        super().__init__(HypClusterConfig(num_clusters=1), sharing)
