"""A network is tried on the GPU in a process of its own: a CUDA error spoils the one it is in."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np
import torch

from sofa_fl.data.federated_data import ClientData, FederatedData
from sofa_fl.engine.base import LocalConfig, SureEngine, Task
from sofa_fl.engine.workers import can_fork
from sofa_fl.models.networks import Cnn, Mlp, NetworkFactory, build
from sofa_fl.topology.tree import NodeId

SECONDS = 300.0  # after which a trial counts as hung; the first on a GPU compiles kernels
ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
OWN = (Cnn, Mlp)  # networks of the package, which are known to train


def has_gpu() -> bool:
    """Whether a GPU is there, by the driver's word: after asking CUDA, no fork could use it."""
    before = os.environ.get(ASK_NVML)
    os.environ[ASK_NVML] = "1"
    try:
        return torch.cuda.is_available()
    finally:
        del os.environ[ASK_NVML]
        if before is not None:
            os.environ[ASK_NVML] = before


def failure_on_gpu(
    make: Callable[[FederatedData], SureEngine],
    factory: NetworkFactory,
    data: FederatedData,
    local: LocalConfig,
) -> str | None:
    """How two clients' training fails on the GPU, as the end of a sentence; None if it does not.

    None too where nothing can be tried: this process has used CUDA before, or cannot fork.
    """
    if not can_fork() or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    if type(build(factory, 0)) in OWN:
        return None

    def job() -> None:
        try:
            torch.zeros(1, device="cuda")
        except RuntimeError:  # CUDA was asked for its devices before the fork
            return
        some = few(data, local)
        train_few(make(some), some)
        torch.cuda.synchronize()

    return failure_apart(job)


def failure_apart(job: Callable[[], object], seconds: float = SECONDS) -> str | None:
    """Run `job` in a process of its own: how it failed, as the end of a sentence, or None."""
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(job, theirs), daemon=True)
    with warnings.catch_warnings():
        # Python 3.12 warns of forking where there are threads; see `workers.py`.
        warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
        process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            return f"it did not finish within {seconds:g} s"
        said: str | None = ours.recv()
    except EOFError:
        process.join()
        return f"its process died (exit code {process.exitcode})"
    finally:
        process.kill()
        process.join()
        ours.close()
    return said


def _run(job: Callable[[], object], pipe: Connection) -> None:
    torch.set_num_threads(1)  # the parent's threads are not there after a fork
    try:
        job()
    except Exception as error:
        lines = str(error).strip().splitlines()
        pipe.send(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)
    else:
        pipe.send(None)
    pipe.close()
    os._exit(0)  # what CUDA does at the end of a process is of no interest


def few(data: FederatedData, local: LocalConfig) -> FederatedData:
    """Two clients with a batch each, or with half of the samples if there are fewer."""
    rows = np.arange(min(len(data.train), 2 * local.batch_size))
    halves = np.array_split(rows, 2) if len(rows) > 1 else [rows]
    nothing = rows[:0]
    clients = tuple(ClientData(train=half, holdout=nothing, test=nothing) for half in halves)
    return FederatedData(
        data.train.take(rows), data.test.take(rows[: len(data.test)]), clients, data.num_outputs
    )


def train_few(engine: SureEngine, data: FederatedData) -> None:
    """Two batches of every client."""
    start = engine.initial(0)
    engine.train(
        Task(site=NodeId(i), start=start, samples=client.train, batches=2, seed=i)
        for i, client in enumerate(data.clients)
    )
