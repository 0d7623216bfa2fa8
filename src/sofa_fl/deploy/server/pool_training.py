"""The training of a cluster on its pool, on the server, through which the samples have passed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sofa_fl.data.federated_data import Arrays
from sofa_fl.deploy.server.sample_relay import SampleRelay
from sofa_fl.deploy.transport.machine_profile import SampleFormat
from sofa_fl.deploy.transport.run_setup import RunSetup
from sofa_fl.engine.base import Outcome, Task
from sofa_fl.engine.learner import Learner, Store
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.present import log_shares


def train_on_pool(
    task: Task, relay: SampleRelay, format: SampleFormat, setup: RunSetup, factory: NetworkFactory
) -> Outcome | None:
    """Train on those samples of a task that are here; None if there are none."""
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
