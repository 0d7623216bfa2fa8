"""What a node has to know of a run: how it trains, and how messages travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sofa_fl.deploy.transport.wire import GarbageError, Transport, typed
from sofa_fl.engine.base import LocalConfig
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import parse_config
from sofa_fl.models.networks import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The part of a run's configuration that goes to the nodes, with every message.

    Attributes:
        num_outputs: Size of a network's last layer; 0 before all nodes have said what they have.
    """

    seed: int
    holdout: float
    local: LocalConfig
    model: ModelConfig
    transport: Transport = "float32"
    num_outputs: int = 0

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, values: Any) -> Setup:
        """What `plain` wrote; anything else is garbage."""
        if not isinstance(values, Mapping):
            raise GarbageError("a message must say how the run trains")
        try:
            parts = {key: values.get(key, {}) for key in ("local", "model")}
            parts["data"] = {"holdout": values.get("holdout")}
            config = parse_config(parts)
        except ConfigError as error:
            raise GarbageError(str(error)) from None
        transport: Transport = "float16" if values.get("transport") == "float16" else "float32"
        return cls(
            seed=typed(values, "seed", int),
            holdout=config.data.holdout,
            local=config.local,
            model=config.model,
            transport=transport,
            num_outputs=typed(values, "num_outputs", int),
        )
