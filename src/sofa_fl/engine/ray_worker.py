"""What runs in a Ray worker: the fast engine of its machine, made once and kept for more tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.data.base import Arrays, FederatedData
from sofa_fl.engine.base import LocalConfig, Task
from sofa_fl.engine.exams import Sitting
from sofa_fl.engine.memory import keep_memory, reading
from sofa_fl.engine.parcels import Embedding, Parcel, unpack
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.errors import EngineError
from sofa_fl.models.mix import as_vector
from sofa_fl.models.networks import NetworkFactory


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker needs once.

    Attributes:
        data: With images channels last, as they are read: so workers of one machine share them.
        device: Where it trains; many at once where that is no CPU, or where it is told to.
        versions: Of what computes, where the asks come from.
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
    ) -> Setup:
        data = replace(data, train=_moved(data.train, 1, -1), test=_moved(data.test, 1, -1))
        return cls(factory, data, local, device, stacked, versions())


class Bench:
    """An engine set up in this process, and how it serves what comes in parcels."""

    def __init__(self, setup: Setup) -> None:
        if (here := versions()) != setup.versions:
            raise EngineError(f"a Ray node has {here}, but the run has {setup.versions}")
        if setup.device == "cuda" and not torch.cuda.is_available():
            raise EngineError(
                "the Ray cluster has GPUs that torch cannot use there; install torch with CUDA, "
                "or start its nodes with --num-gpus 0"
            )
        # As everywhere: two threads of one task wait for each other, and bits would depend on it.
        torch.set_num_threads(1)
        keep_memory()
        data = setup.data
        data = replace(data, train=_moved(data.train, -1, 1), test=_moved(data.test, -1, 1))
        self.device = torch.device(setup.device)
        self.engine = _engine(setup, data)

    def serve(self, parcels: Sequence[Parcel], arrays: Sequence[NDArray[Any]]) -> list[Any]:
        """Arrays and pairs of them, ask by ask; all asks are of one kind."""
        vectors = [reading(array).to(self.device) for array in arrays]
        asks = unpack(parcels, vectors)
        outcomes = self.engine.train(ask for ask in asks if isinstance(ask, Task))
        if outcomes:
            return [(outcome.params.cpu().numpy(), outcome.losses) for outcome in outcomes]
        if asked := [ask for ask in asks if isinstance(ask, Sitting)]:
            return self.engine.sums(asked)
        embeddings = [ask for ask in asks if isinstance(ask, Embedding)]
        return [self.engine.embed([as_vector(e.model)], e.samples)[0] for e in embeddings]


def versions() -> dict[str, str]:
    """Of what must be the same on all machines, lest results depend on who computed them."""
    try:
        own = metadata.version("sofa-fl")
    except metadata.PackageNotFoundError:  # run from its source
        own = "unknown"
    build = torch.__version__.partition("+")[0]  # for a CPU or a GPU, it is the same version
    return {"sofa-fl": own, "torch": build, "numpy": np.__version__}


_benches: dict[str, Bench] = {}  # of this process: the last one used


def work(box: Sequence[Any], parcels: Sequence[Parcel], *arrays: NDArray[Any]) -> list[Any]:
    """Serve the parcels; `box` has a reference to the setup, which is read only if it is new."""
    import ray

    (setup,) = box
    if setup.hex() not in _benches:
        _benches.clear()
        _benches[setup.hex()] = Bench(ray.get(setup))
    return _benches[setup.hex()].serve(parcels, arrays)


def _engine(setup: Setup, data: FederatedData) -> SequentialEngine | StackedEngine:
    if setup.stacked:
        return StackedEngine(setup.factory, data, setup.local, setup.device)
    return SequentialEngine(setup.factory, data, setup.local, setup.device)


def _moved(arrays: Arrays, source: int, target: int) -> Arrays:
    """Images with one axis elsewhere, in memory as they read; other samples as they are."""
    if arrays.x.ndim != 4:
        return arrays
    x = np.moveaxis(arrays.x, source, target)
    return replace(arrays, x=np.ascontiguousarray(x) if target == -1 else x)
