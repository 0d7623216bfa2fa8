"""Samples that pass through the server, from the machine that gave them to others.

Clusters train on them there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Arrays, Samples
from sofa_fl.engine.base import Outcome, Task
from sofa_fl.engine.learner import Learner, Store
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.present import log_shares
from sofa_fl_flower.transport.machine_profile import SampleFormat
from sofa_fl_flower.transport.run_setup import RunSetup


class SampleRelay:
    """Samples by row, in memory only, and only as long as a task trains on them."""

    def __init__(self) -> None:
        self._samples: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._refused: set[int] = set()

    def put(self, rows: Samples, x: NDArray[Any], y: NDArray[Any]) -> None:
        self._samples |= {row: (x[i].copy(), y[i].copy()) for i, row in enumerate(rows.tolist())}

    def refuse(self, rows: Samples) -> None:
        """Remember that the owner refused these, so that it is not asked for them again."""
        self._refused |= set(rows.tolist())

    def drop_all_but(self, rows: Samples) -> None:
        self._samples = {row: self._samples[row] for row in rows.tolist() if row in self._samples}

    def missing(self, rows: Samples) -> Samples:
        """The rows that are neither here nor refused."""
        known = self._samples.keys() | self._refused
        return np.array([row for row in rows.tolist() if row not in known], dtype=np.int64)

    def has(self, rows: Samples) -> NDArray[np.bool_]:
        return np.array([row in self._samples for row in rows.tolist()], dtype=np.bool_)

    def get(self, rows: Samples) -> tuple[NDArray[Any], NDArray[Any]]:
        samples = [self._samples[row] for row in rows.tolist()]
        return np.stack([x for x, _ in samples]), np.stack([y for _, y in samples])


def train_on_pool(
    task: Task, relay: SampleRelay, format: SampleFormat, setup: RunSetup, factory: NetworkFactory
) -> Outcome | None:
    """Train a cluster on those samples of its pool that are here; None if there are none."""
    rows = task.samples[relay.has(task.samples)]
    if not len(rows):
        return None
    x, y = relay.get(rows)
    store = Store(Arrays(x, y, format.scale, format.shift))
    learner = Learner(factory, {"train": store}, setup.local)
    prior = task.prior
    if prior is not None:
        prior = log_shares(np.bincount(y, minlength=setup.num_outputs))
    return learner.train(replace(task, samples=np.arange(len(rows)), prior=prior))
