"""Which engine runs here: the one asked for, or the fastest, by measurement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sofa_fl.data.federated_data import FederatedData
from sofa_fl.engine.base import Engine, LocalConfig, SureEngine, Task
from sofa_fl.engine.config import EngineName, Name
from sofa_fl.engine.ray_engine import RayEngine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.trial import failure_on_gpu, has_gpu
from sofa_fl.engine.workers import WorkersEngine, can_fork, num_cores
from sofa_fl.errors import ModelError
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.topology.tree import NodeId

BATCHES = 2  # per client in the measurement
TIMES = 3  # that it is taken; the shortest counts, for others may use the machine just now
# A machine that is busy now may be free for the rest of the run, and then workers gain the most.
WEIGHT: dict[Name, float] = {"workers": 0.75}


@dataclass(frozen=True, slots=True)
class Pick:
    """An engine, its name, and why it is this one, if it was not asked for."""

    name: EngineName
    engine: Engine
    why: str = ""


def pick_engine(
    name: EngineName, factory: NetworkFactory, data: FederatedData, local: LocalConfig
) -> Pick:
    """The engine called `name`; for `auto`, those that run here are tried and the fastest kept."""
    if name != "auto":
        engine = make_engine(name, factory, data, local)
        return Pick(name, engine, _way(engine))
    refused = _failures(factory, data, local) if has_gpu() else {}
    engines: dict[Name, SureEngine] = {}
    for candidate in _candidates(data):
        if candidate not in refused:
            try:
                engines[candidate] = make_engine(candidate, factory, data, local)
            except ModelError as error:  # where nothing was tried: CUDA was in use before
                if not has_gpu():
                    raise
                refused[candidate] = str(error)
    said = "".join(f"; {each} fails on the GPU: {why}" for each, why in refused.items())
    if not engines:  # on the GPU: nothing that was tried there got through
        torch.set_num_threads(1)
        return Pick("sequential", SequentialEngine(factory, data, local), f"on the CPU{said}")
    if len(engines) == 1:
        ((only, engine),) = engines.items()
        return Pick(only, engine, f"no other engine runs here{said}")
    seconds = {candidate: _measure(engine, data) for candidate, engine in engines.items()}
    best = min(seconds, key=lambda candidate: seconds[candidate] * WEIGHT.get(candidate, 1.0))
    for candidate, engine in engines.items():
        if candidate != best:
            engine.close()
    times = ", ".join(f"{candidate} {took:.2g} s" for candidate, took in seconds.items())
    way = _way(engines[best])
    return Pick(best, engines[best], f"measured: {times}" + (f"; {way}" if way else ""))


def make_engine(
    name: Name, factory: NetworkFactory, data: FederatedData, local: LocalConfig
) -> SureEngine:
    """The engine called `name`, on the GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "stacked":
        return StackedEngine(factory, data, local, device)
    # One thread: two threads of one task wait for each other, above all on a busy machine.
    # And sums come out the same to the bit on any number of cores.
    torch.set_num_threads(1)
    if name == "ray":
        return RayEngine(factory, data, local, _num_workers(data))
    if name == "workers":
        return WorkersEngine(factory, data, local, _num_workers(data))
    return SequentialEngine(factory, data, local, device)


def _failures(factory: NetworkFactory, data: FederatedData, local: LocalConfig) -> dict[Name, str]:
    """Which engines fail on the GPU with this network, and how: each is tried on its own."""

    def failure(name: Name) -> str | None:
        return failure_on_gpu(
            lambda some: make_engine(name, factory, some, local), factory, data, local
        )

    tried: dict[Name, str | None] = {"stacked": failure("stacked")}
    if tried["stacked"]:
        tried["sequential"] = failure("sequential")
    return {name: why for name, why in tried.items() if why}


def _way(engine: SureEngine) -> str:
    """How the stacked engine goes about it; the others have one way."""
    return engine.way if isinstance(engine, StackedEngine) else ""


def _candidates(data: FederatedData) -> Sequence[Name]:
    if torch.cuda.is_available():
        return ("stacked", "sequential")
    if can_fork() and _num_workers(data) > 1:
        return ("workers", "sequential")
    return ("sequential",)


def _num_workers(data: FederatedData) -> int:
    return min(num_cores(), len(data.clients))


def _measure(engine: SureEngine, data: FederatedData) -> float:
    """Seconds for a few batches of a few clients, or of many where they go together."""
    start = engine.initial(0)
    num = 64 if start.is_cuda else 2 * num_cores()
    tasks = [
        Task(site=NodeId(i), start=start, samples=client.train, batches=BATCHES, seed=i)
        for i, client in enumerate(data.clients[:num])
    ]
    took = []
    for _ in range(1 + TIMES):  # the first time is for what is done but once
        started = time.perf_counter()
        outcomes = engine.train(tasks)
        float(outcomes[-1].params[0])  # waits for the GPU
        took.append(time.perf_counter() - started)
    return min(took[1:])
