"""The models that a machine keeps between messages, so that they need not travel again."""

from __future__ import annotations

import secrets
from typing import Any

from numpy.typing import NDArray

from sofa_fl.engine.task_codec import Header
from sofa_fl.models.flat import Mix, Vector, as_vector
from sofa_fl_flower.transport.wire_message import (
    MessageBuilder,
    ModelType,
    WireMessage,
    read_mix,
)

MAX_MODELS = 256  # a server could send ever more


class ModelCache:
    """Models that the machine trained, or was sent since; of too many, the newest."""

    def __init__(self, size: int, model_type: ModelType) -> None:
        self.size, self.model_type = size, model_type
        self._models: dict[str, NDArray[Any]] = {}

    def find(self, name: Any, message: WireMessage) -> Vector:
        """A model of the message, one in the cache, or a mix of such."""
        if isinstance(name, list):
            names, weights = read_mix(name)
            return as_vector(Mix(tuple(self.find(part, message) for part in names), weights))
        if isinstance(name, str) and name in self._models:
            message = WireMessage({}, self._models)
        return message.model(name, self.size, self.model_type)

    def keep_trained(self, outcomes: list[dict[str, str]], builder: MessageBuilder) -> None:
        """Keep the models that were trained, and name them in `outcomes`.

        All others are dropped: the server does not refer to earlier models any more.
        """
        token = secrets.token_hex(4)
        known = [outcome for outcome in outcomes if "params" in outcome]  # the others are masked
        for number, outcome in enumerate(known):
            outcome["cached"] = f"{token} {number}"
        self._models = {o["cached"]: builder.arrays[o["params"]] for o in known}

    def keep_sent(self, exams: list[Header], message: WireMessage) -> dict[str, str]:
        """Keep the models that were evaluated; return their new names by their old ones."""
        token = secrets.token_hex(4)
        used: set[str] = set()
        for exam in exams:
            name = exam.get("params")
            used.update(read_mix(name)[0] if isinstance(name, list) else (str(name),))
        cached = {name: f"{token} {name}" for name in sorted(used & message.arrays.keys())}
        self._models |= {new: message.arrays[name] for name, new in cached.items()}
        for name in list(self._models)[:-MAX_MODELS]:
            del self._models[name]
        return cached
