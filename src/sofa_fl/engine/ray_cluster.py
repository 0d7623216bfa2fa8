"""A Ray cluster to work on: one started here, which ends with us, or one that is there."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from sofa_fl.errors import EngineError

# Nothing is reported to Ray's makers, nothing is installed while we run, and Ray prints nothing:
# it would tell stdout of every worker that was lost.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # as it is from 2.60 on; before, Ray warns of that
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
# Nobody looks at what Ray would note down of every task, and it would grow with the run.
SYSTEM = {"task_events_report_interval_ms": 0, "enable_metrics_collection": False}
SMALLEST_STORE = 100 << 20  # Ray refuses less than 75 MiB


class Cluster:
    """Where tasks run. What was begun by this is ended by `leave`; nothing else is."""

    def __init__(self, address: str | None, num_cpus: int, store_bytes: int) -> None:
        """Join the cluster at `address` or `RAY_ADDRESS`; without either, start one here.

        A process that is in a cluster already stays there. `num_cpus` and `store_bytes`, the size
        of the object store, are of a cluster that is started.
        """
        self.ray = import_ray()
        self._ours = not self.ray.is_initialized()
        if self._ours:
            address = address or os.environ.get("RAY_ADDRESS") or "local"
            _init(self.ray, address, num_cpus, store_bytes)

    @property
    def num_cpus(self) -> int:
        return int(self.ray.cluster_resources().get("CPU", 0))

    @property
    def num_gpus(self) -> int:
        return int(self.ray.cluster_resources().get("GPU", 0))

    def leave(self) -> None:
        """End what we started: the cluster, or our part in it with all our workers."""
        if self._ours and self.ray.is_initialized():
            self.ray.shutdown()
        self._ours = False


def import_ray() -> Any:
    with _environment():  # some of it is read by the import
        try:
            import ray
            import ray.exceptions
        except ImportError:
            raise EngineError(
                "engine: ray needs the package ray; pip install 'sofa-fl[ray]'"
            ) from None
    return ray


def _init(ray: Any, address: str, num_cpus: int, store_bytes: int) -> None:
    if "://" in address:
        raise EngineError(
            f"engine: ray runs on a machine of the cluster, not through {address}; "
            "use ray start --address there, or ray job submit"
        )
    if address not in ("local", "auto"):
        _check_answers(address)
    own = {
        "num_cpus": num_cpus,
        "num_gpus": torch.cuda.device_count(),
        "object_store_memory": max(store_bytes, SMALLEST_STORE),
        "include_dashboard": False,
        "_system_config": SYSTEM,
    }
    try:
        with _environment():
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                **(own if address == "local" else {}),
            )
    except Exception as error:  # of many kinds, all about what is outside of us
        why = str(error).strip().splitlines()[0].partition(". ")[0]
        where = "cannot start here" if address == "local" else f"cannot be joined at {address}"
        raise EngineError(f"Ray {where}: {why}") from None


def _check_answers(address: str) -> None:
    """Raise if nothing listens at `address`: Ray itself would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise EngineError(f"RAY_ADDRESS must be auto, local or host:port, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise EngineError(f"no Ray cluster answers at {address} (RAY_ADDRESS): {error}") from None


@contextmanager
def _environment() -> Iterator[None]:
    """Variables that Ray's processes read when they start; afterwards all is as it was."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
