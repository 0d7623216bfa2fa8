"""What a machine is asked to train, as a hash: the same for all members of a sum.

Otherwise a server could make the models of all others known beforehand, by another model to start
from, a pace of 0 or a strong pull, and would find a single one in the sum (Pasquini et al. 2022).
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

from sofa_fl.deploy.transport.run_setup import RunSetup
from sofa_fl.engine.base import Task
from sofa_fl.engine.task_codec import decode, encode
from sofa_fl.models.flat import Model, Vector, as_vector

SIZE = 16  # bytes


def work_digest(task: Task, setup: RunSetup) -> str:
    """A hash of all but whose samples a task is on, and in which order; of a task as it arrives."""
    plain = {
        "setup": setup.to_dict(),
        "batches": task.batches,
        "pace": float(task.pace),
        "part": task.part,
        "prior": task.prior is not None,
        "pulls": [float(pull.weight) for pull in task.pulls],
    }
    digest = hashlib.blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=SIZE)
    for vector in (as_vector(task.start), *(pull.target for pull in task.pulls)):
        digest.update(np.ascontiguousarray(vector.cpu().numpy()).data)
    return digest.hexdigest()


def as_it_arrives(task: Task, setup: RunSetup) -> Task:
    """A task as a machine decodes it: one sum of all pulls, and models as they travel."""

    def travelled(model: Model) -> Vector:
        vector = as_vector(model)
        return vector.half().float() if setup.transport == "float16" else vector.float()

    return decode(Task, encode(task, travelled), lambda vector: vector)
