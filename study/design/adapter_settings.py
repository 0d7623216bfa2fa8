"""Trees of adapters: the federations, and who is compared in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from study.design.settings import Overrides

Network = Literal["one A", "both factors", "head", "all"]  # what of an encoder is trained
SWAP_AT = 8
COMMON: Overrides = {
    "rounds": 8,
    "warmup": 25,
    "local.batches": 20,
    "local.batch_size": 16,
    "sharing.ratio": 0.0,
    "save_every": 8,
    "evaluate.every": 4,
}
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # tried on held-out queries, with RATE_SEED
RATE_SEED = 100
QUICK: Overrides = {
    "rounds": 2, "warmup": 2, "local.batches": 2, "local.batch_size": 8, "engine": "sequential"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdapterFederation:
    """A title, the queries that every vendor has (None: all), whether domains are swapped."""

    title: str
    samples: int | None = None
    swaps: bool = False
    overrides: Overrides = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Adapted:
    """A title, a method, the best of `RATES`, what of the encoder it trains, what it changes."""

    title: str
    method: str
    rate: float
    network: Network = "one A"
    overrides: Overrides = field(default_factory=dict)


FEDERATIONS: Mapping[str, AdapterFederation] = {
    "I1": AdapterFederation("40 vendors with 375 queries each"),
    "I2": AdapterFederation("40 vendors with 75 queries each", samples=75),
    "I3": AdapterFederation(
        "40 vendors, of whom ten serve another domain from round 8 on",
        swaps=True,
        overrides={"rounds": 13, "evaluate.every": 1},
    ),
}
ADAPTED: Mapping[str, Adapted] = {
    "sofa": Adapted("SOFA-FL, a tree of adapters", "sofa", 1e-2),
    "local": Adapted("each on its own (local LoRA)", "local", 3e-3),
    "fedit": Adapted("FedAvg of both factors (FedIT)", "fedavg", 3e-2, "both factors"),
    "fedavg": Adapted("FedAvg, one A", "fedavg", 3e-2),
    "fedavg_ft": Adapted("FedAvg, then tuned by each", "fedavg_ft", 3e-2),
    "hypcluster": Adapted(
        "HypCluster, told K = 10", "hypcluster", 3e-2, overrides={"hypcluster.num_clusters": 10}
    ),
    "head": Adapted("SOFA-FL, a head alone", "sofa", 3e-2, "head"),
    "factors": Adapted("SOFA-FL, both factors", "sofa", 1e-2, "both factors"),
    "oracle": Adapted("FedAvg within the true domains (oracle)", "oracle", 1e-2),
}
