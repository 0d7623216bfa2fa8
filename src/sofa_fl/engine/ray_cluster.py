"""The Ray cluster of an engine: one that it starts and ends, or one that exists already."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from sofa_fl.errors import EngineError

# Send no telemetry, install nothing at run time, and print nothing: Ray would report every lost
# worker on stdout.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the default from 2.60 on; before, Ray warns
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
# Records of every task would grow with the run, and nothing reads them.
SYSTEM = {"task_events_report_interval_ms": 0, "enable_metrics_collection": False}
SMALLEST_STORE = 100 << 20  # Ray refuses less than 75 MiB


class Cluster:
    """Where tasks run; `leave` ends what this object started, and nothing else."""

    def __init__(self, address: str | None, num_cpus: int, store_bytes: int) -> None:
        """Join the cluster at `address` or `RAY_ADDRESS`; without either, start one here.

        A process that is in a cluster already stays there. `num_cpus` and `store_bytes`, the size
        of the object store, are for a cluster that is started here.
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
        """End the cluster if it was started here; else leave it, which ends our workers."""
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
            f"engine: ray must run on a machine of the cluster, not through {address}; "
            "use ray start --address on this machine, or ray job submit"
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
    except Exception as error:  # Ray raises many types
        why = str(error).strip().splitlines()[0].partition(". ")[0]
        where = "cannot start here" if address == "local" else f"cannot be joined at {address}"
        raise EngineError(f"Ray {where}: {why}") from None


def _check_answers(address: str) -> None:
    """Raise if nothing listens at `address`; Ray itself would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise EngineError(f"RAY_ADDRESS must be auto, local or host:port, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"no Ray cluster answers at {address}: {error}; check RAY_ADDRESS"
        ) from None


@contextmanager
def _environment() -> Iterator[None]:
    """Set the variables that Ray's processes read at their start, and restore them after it."""
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
