"""What a machine must know of a run: how it trains, and how models travel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from sofa_fl.deploy.transport.message_checks import MessageError, checked_value, shown
from sofa_fl.deploy.transport.wire_message import ModelType
from sofa_fl.engine.base import LocalConfig
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import parse_config
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import NetworkFactory, network_factory

# A user's own network, of the shape of an input and the number of outputs.
MakeNetwork = Callable[[tuple[int, ...], int], nn.Module]


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
