"""Which engine runs here."""

from __future__ import annotations

from typing import Literal

import torch

from sofa_fl.data.base import FederatedData
from sofa_fl.engine.base import Engine, LocalConfig
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.workers import WorkersEngine, can_fork, num_cores
from sofa_fl.models.networks import NetworkFactory

EngineName = Literal["auto", "sequential", "workers"]


def make_engine(
    name: EngineName, factory: NetworkFactory, data: FederatedData, local: LocalConfig
) -> Engine:
    """The engine called `name`; `auto` takes workers where there are cores and clients for them."""
    if name == "auto":
        several = can_fork() and num_cores() > 1 and len(data.clients) > 1
        name = "workers" if several else "sequential"
    if name == "workers":
        return WorkersEngine(factory, data, local, min(num_cores(), len(data.clients)))
    # One thread: on small networks a second one gains little, and loses much on a busy machine.
    torch.set_num_threads(1)
    return SequentialEngine(factory, data, local)
