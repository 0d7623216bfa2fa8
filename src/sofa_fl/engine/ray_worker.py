"""What runs in a Ray worker: an engine, created once and kept for later messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.engine.base import LocalConfig, Outcome
from sofa_fl.engine.memory import keep_memory
from sofa_fl.engine.ray_messages import RayMessage, unpack_requests
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.task_codec import run_requests
from sofa_fl.errors import EngineError
from sofa_fl.models.flat import reading
from sofa_fl.models.networks import NetworkFactory


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker needs once.

    Attributes:
        data: Images have their channels last, as torch reads them, so that workers of one machine
            share one copy.
        device: Where it trains.
        stacked: Whether it trains many clients at once.
        versions: Of sofa-fl, torch and NumPy on the machine of the run.
    """

    factory: NetworkFactory
    data: FederatedData
    local: LocalConfig
    device: str
    stacked: bool
    versions: dict[str, str]

    @classmethod
    def of(
        cls,
        factory: NetworkFactory,
        data: FederatedData,
        local: LocalConfig,
        device: str,
        *,
        stacked: bool,
    ) -> WorkerSetup:
        data = replace(data, train=_moved(data.train, 1, -1), test=_moved(data.test, 1, -1))
        return cls(factory, data, local, device, stacked, versions())


class RayWorker:
    """The engine of this process, and its answers to messages."""

    def __init__(self, setup: WorkerSetup) -> None:
        if (here := versions()) != setup.versions:
            raise EngineError(
                f"every machine of the Ray cluster must have the run's versions, {setup.versions}, "
                f"but one has {here}; install the same versions there"
            )
        if setup.device == "cuda" and not torch.cuda.is_available():
            raise EngineError(
                "the Ray cluster offers GPUs that torch cannot use there; install torch with CUDA "
                "on those machines, or start Ray there with --num-gpus 0"
            )
        # One thread, as in every engine: results would depend on the number of threads.
        torch.set_num_threads(1)
        keep_memory()
        data = setup.data
        data = replace(data, train=_moved(data.train, -1, 1), test=_moved(data.test, -1, 1))
        self.device = torch.device(setup.device)
        self.engine = _engine(setup, data)

    def answer(self, message: RayMessage, arrays: Sequence[NDArray[Any]]) -> list[Any]:
        """Answer every request of a message with an array, several arrays, or an outcome's two."""
        vectors = [reading(array).to(self.device) for array in arrays]
        return [
            (answer.params.cpu().numpy(), answer.losses) if isinstance(answer, Outcome) else answer
            for answer in run_requests(self.engine, unpack_requests(message, vectors))
        ]


def versions() -> dict[str, str]:
    """The versions that must be the same on all machines, since results depend on them."""
    try:
        own = metadata.version("sofa-fl")
    except metadata.PackageNotFoundError:  # run from its source
        own = "unknown"
    build = torch.__version__.partition("+")[0]  # builds for CPU and GPU count as the same
    return {"sofa-fl": own, "torch": build, "numpy": np.__version__}


_workers: dict[str, RayWorker] = {}  # the last one used in this process, by its setup


def work(box: Sequence[Any], message: RayMessage | None, *arrays: NDArray[Any]) -> list[Any]:
    """Answer a message; without one, only set up the worker.

    `box` holds a reference to the setup, which is read only if it is new.
    """
    import ray

    (setup,) = box
    if setup.hex() not in _workers:
        _workers.clear()
        _workers[setup.hex()] = RayWorker(ray.get(setup))
    return _workers[setup.hex()].answer(message, arrays) if message is not None else []


def _engine(setup: WorkerSetup, data: FederatedData) -> SequentialEngine | StackedEngine:
    if setup.stacked:
        return StackedEngine(setup.factory, data, setup.local, setup.device)
    return SequentialEngine(setup.factory, data, setup.local, setup.device)


def _moved(arrays: Arrays, source: int, target: int) -> Arrays:
    """Move an axis of images, contiguous in memory if it becomes the last; copy nothing else."""
    if arrays.x.ndim != 4:
        return arrays
    x = np.moveaxis(arrays.x, source, target)
    return replace(arrays, x=np.ascontiguousarray(x) if target == -1 else x)
