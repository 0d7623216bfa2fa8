"""APFL (arXiv:2003.13461): a client serves a mixture of the global model and one of its own.

The personal model is trained through the mixture, with the global one held fixed; half of the
budget trains each. The mixture's weight is the same for all clients and does not adapt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sofa_fl.engine.base import LocalConfig, answered
from sofa_fl.federation import Federation
from sofa_fl.methods.config import ApflConfig
from sofa_fl.methods.method import Notes, View, notes_of
from sofa_fl.methods.personal import PersonalMethod, PersonalState, two_parts, view_of
from sofa_fl.methods.registry import register
from sofa_fl.models.flat import Mix, Vector, as_vector
from sofa_fl.sharing import SharingConfig, training_sets


@register("apfl", "APFL", ApflConfig, section="apfl")
@dataclass(frozen=True, slots=True)
class Apfl(PersonalMethod):
    config: ApflConfig
    sharing: SharingConfig

    def round(self, state: PersonalState, fed: Federation) -> tuple[PersonalState, Notes]:
        """Train the global model, and every personal one through its mixture with it."""
        before = self.base.welcome(state.average, fed)
        samples = training_sets(before.tree, before.shared.pools, fed.owned)
        start, (half, rest) = before.models[0], two_parts(fed, 0.5)
        personal = {client: state.personal.get(client, start) for client in fed.clients}
        shared = [
            fed.task(c, start, samples[c], batches=half, purpose="train for all")
            for c in fed.clients
        ]
        alone = [
            fed.task(c, self.mixture(personal[c], start), samples[c], batches=rest)
            for c in fed.clients
        ]
        alone = [replace(task, learning_rate=self.mixture_rate(fed.local)) for task in alone]
        outcomes = fed.train([*shared, *alone])
        after = self.base.cluster_update(before, answered(fed.clients, outcomes), fed)
        trained = answered(fed.clients, outcomes[len(shared) :])
        for client, outcome in trained.items():
            personal[client] = self.without(start, outcome.params, personal[client], fed)
        return PersonalState(after, personal), notes_of(trained, fed)

    def mixture(self, personal: Vector, average: Vector) -> Mix:
        return Mix((personal, average), (self.config.alpha, 1 - self.config.alpha))

    def mixture_rate(self, local: LocalConfig) -> float:
        """The rate at which the mixture moves when the personal model in it has the configured one.

        The personal model's gradient is `alpha` times the mixture's, and the mixture moves by
        `alpha` times the step; Adam's step does not depend on the scale of gradients.
        """
        alpha = self.config.alpha
        return local.learning_rate * (alpha if local.optimizer == "adam" else alpha**2)

    def without(self, average: Vector, mixed: Vector, before: Vector, fed: Federation) -> Vector:
        """The personal model in a mixture that was trained; buffers are the mixture's."""
        alpha, n = self.config.alpha, fed.engine.num_trainable
        if not alpha:
            return before
        moved = mixed - as_vector(self.mixture(before, average))
        after = before + moved / alpha
        after[n:] = mixed[n:]
        return after

    def view(self, state: PersonalState) -> View:
        (average,) = state.average.models
        served = {c: self.mixture(model, average) for c, model in state.personal.items()}
        return view_of(state.average, self.base, state.personal, served)
