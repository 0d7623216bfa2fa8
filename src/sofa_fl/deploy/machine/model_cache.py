"""Models that a node has still, so that they need not travel again.

Of a model in a message, the server knows when it lay in the node's last answer, or was sent there
since it last trained. A mix of such models goes as their names and weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sofa_fl.deploy.transport.wire import ModelName, Packer, Parcel
from sofa_fl.engine.base import Outcome
from sofa_fl.models.mix import Mix, Model, identity


@dataclass(frozen=True, slots=True)
class Kept:
    """The models that one node has, by identity; with the model, since ids must stay taken."""

    models: Mapping[object, tuple[Model, str]] = field(default_factory=dict)

    def name(self, model: Model, packer: Packer) -> ModelName:
        """What a model is called in a message: it travels only if the node cannot make it."""
        if (found := self.models.get(identity(model))) is not None:
            return found[1]
        if self.models and isinstance(model, Mix):
            missing = [part for part in model.models if identity(part) not in self.models]
            if len(missing) <= 1:  # the part is of more use there than this mix of it
                parts = [self.name(part, packer) for part in model.models]
                return [[part, float(weight)] for part, weight in zip(parts, model.weights)]
        return packer.add_model(model)

    def with_sent(self, answer: Parcel, packer: Packer) -> Kept:
        """And what was sent by `packer`, as far as the answer says that it was kept."""
        names = answer.header.get("kept")
        if not isinstance(names, Mapping):
            return self
        sent = {
            key: (model, names[name])
            for key, (model, name) in packer.models.items()
            if isinstance(names.get(name), str)
        }
        return Kept({**self.models, **sent})


NOTHING = Kept()


def kept_outcomes(answer: Parcel, outcomes: Sequence[Outcome]) -> Kept:
    """Which of the models that it has trained a node has still, and under which name."""
    return Kept(
        {
            identity(outcome.params): (outcome.params, spec["kept"])
            for spec, outcome in zip(answer.header["outcomes"], outcomes)
            if isinstance(spec.get("kept"), str)
        }
    )
