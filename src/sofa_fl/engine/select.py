"""Which engine runs here."""

from __future__ import annotations

from typing import Literal

import torch

from sofa_fl.data.base import FederatedData
from sofa_fl.engine.base import Engine, LocalConfig
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.stacking import why_not
from sofa_fl.engine.workers import WorkersEngine, can_fork, num_cores
from sofa_fl.models.networks import NetworkFactory, build

EngineName = Literal["auto", "sequential", "workers", "stacked"]


def make_engine(
    name: EngineName, factory: NetworkFactory, data: FederatedData, local: LocalConfig
) -> Engine:
    """The engine called `name`; `auto` takes what suits this machine.

    That is, on a GPU, clients stacked if the network allows it; on a CPU, worker processes if
    there are cores and clients for them.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    num_workers = min(num_cores(), len(data.clients))
    if name == "auto" and device == "cuda":
        is_classifier = data.train.y.dtype.kind != "f"
        name = "stacked" if is_classifier and not why_not(build(factory, 0)) else "sequential"
    elif name == "auto":
        name = "workers" if can_fork() and num_workers > 1 else "sequential"
    if name == "stacked":
        return StackedEngine(factory, data, local, device)
    # One thread: two threads of one task wait for each other, above all on a busy machine.
    # And sums come out the same to the bit on any number of cores.
    torch.set_num_threads(1)
    if name == "workers":
        return WorkersEngine(factory, data, local, num_workers)
    return SequentialEngine(factory, data, local, device)
