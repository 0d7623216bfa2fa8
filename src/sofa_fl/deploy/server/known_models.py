"""Which models each machine still holds, so that they need not travel again.

A resident machine keeps what it trained and the models it was sent since, until it trains again.
The server knows from the machine's answers which these are and what they are called there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sofa_fl.deploy.transport.wire_message import MessageBuilder, ModelName, WireMessage
from sofa_fl.engine.base import Outcome
from sofa_fl.models.flat import IdentityDict, Mix, Model


class KnownModels:
    """The models that one machine holds, and what they are called there."""

    def __init__(self) -> None:
        self._names: IdentityDict[str] = IdentityDict()

    def name(self, model: Model, builder: MessageBuilder) -> ModelName:
        """Name a model in a message; it travels along only if the machine cannot compute it."""
        if model in self._names:
            return self._names[model]
        if self._names and isinstance(model, Mix):
            missing = [part for part in model.models if part not in self._names]
            if len(missing) <= 1:  # later messages can use the missing part, but not the mix
                parts = [self.name(part, builder) for part in model.models]
                return [[part, float(weight)] for part, weight in zip(parts, model.weights)]
        return builder.add_model(model)

    def add_sent(self, builder: MessageBuilder, answer: WireMessage) -> None:
        """Add the models of a message that, as the answer says, the machine has cached."""
        cached = answer.header.get("cached")
        if isinstance(cached, Mapping):
            for model, name in builder.models.items():
                self._add(model, cached.get(name))

    def add_trained(self, outcomes: Sequence[Outcome], answer: WireMessage) -> None:
        """Add the models that, as the answer says, the machine has trained and cached."""
        for outcome, header in zip(outcomes, answer.header["outcomes"]):
            self._add(outcome.params, header.get("cached"))

    def _add(self, model: Model, name: object) -> None:
        if isinstance(name, str):
            self._names[model] = name
