"""What a machine must know of a run: how it trains, how models travel, and a hash of its work.

The hash is the same for all members of a sum. Otherwise a server could make the models of all
others known beforehand, by another model to start from, a tiny rate or a strong pull, and would
find a single one in the sum (Pasquini et al. 2022).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import nn

from sofa_fl.engine.base import LocalConfig, Task
from sofa_fl.engine.task_codec import decode, encode
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import parse_config
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.flat import Model, Vector, as_vector
from sofa_fl.models.networks import NetworkFactory, network_factory
from sofa_fl_flower.transport.message_checks import MessageError, checked_value, shown
from sofa_fl_flower.transport.wire_message import ModelType

# A user's own network, of the shape of an input and the number of outputs.
MakeNetwork = Callable[[tuple[int, ...], int], nn.Module]
SIZE = 16  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """The part of a run's configuration that every message to a machine carries.

    Attributes:
        transport: The type in which models travel.
        num_outputs: Size of the network's last layer.
        frozen: The digest of what the network does not train, which every machine has itself;
            empty if there is nothing.
    """

    seed: int
    local: LocalConfig
    model: ModelConfig
    num_outputs: int
    transport: ModelType = "float32"
    frozen: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> RunSetup:
        """Read what `to_dict` wrote."""
        if not isinstance(values, Mapping):
            raise MessageError(
                f"a message must hold the setup of the run, got {shown(repr(values))}"
            )
        try:
            config = parse_config({key: values.get(key, {}) for key in ("local", "model")})
        except (ConfigError, ArithmeticError) as error:
            raise MessageError(shown(error)) from None
        return cls(
            seed=checked_value(values, "seed", int),
            local=config.local,
            model=config.model,
            transport="float16" if values.get("transport") == "float16" else "float32",
            num_outputs=checked_value(values, "num_outputs", int),
            frozen=checked_value(values, "frozen", str) if "frozen" in values else "",
        )

    def network_factory(
        self, input_shape: tuple[int, ...], make_network: MakeNetwork | None
    ) -> NetworkFactory:
        """Return what creates the run's network: the configured one, or the user's own."""
        if make_network is None:
            return network_factory(self.model, input_shape, self.num_outputs)
        return lambda: make_network(input_shape, self.num_outputs)


def work_digest(task: Task, setup: RunSetup) -> str:
    """A hash of all but whose samples a task is on, and in which order; of a task as it arrives."""
    plain = {
        "setup": setup.to_dict(),
        "batches": task.batches,
        "learning_rate": task.learning_rate,
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
