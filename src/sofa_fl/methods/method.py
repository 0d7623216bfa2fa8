"""The interface of a method: it creates a state, and computes the state after every round.

A complete method looks like this:

    class LocalOnly:
        def init(self, fed: Federation) -> tuple[dict[NodeId, Vector], Notes]:
            start = fed.initial()
            return self.round(dict.fromkeys(fed.clients, start), fed)

        def round(self, state, fed):
            outcomes = fed.train([fed.task(client, state[client]) for client in fed.clients])
            heard = answered(fed.clients, outcomes)  # some clients may not answer
            return state | {c: outcome.params for c, outcome in heard.items()}, Notes()

        def view(self, state):
            return View(tree=flat_tree(list(state)), models=state, served=state)

A state is a frozen dataclass (or a mapping) of trees, models, row numbers and plain values. The
experiment saves it, and restores it by the return type that `init` declares, so a method needs no
code for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sofa_fl.engine.base import Outcome
from sofa_fl.federation import Federation
from sofa_fl.methods.positions import sampled_map
from sofa_fl.models.flat import Model
from sofa_fl.sharing import Shared
from sofa_fl.topology.edits import Edit
from sofa_fl.topology.tree import NodeId, Tree

State = TypeVar("State")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What happened in a round, for the events.

    Attributes:
        edits: The edits of the tree.
        local_loss: Loss of every local batch, by client.
        path_loss: Held-out loss of the models on a client's path, by client and node.
        positions: The positions of the clients on a two-dimensional map, by what they learned.
        objective: The terms of the objective that the method minimizes, by name, if it has one.
    """

    edits: tuple[Edit, ...] = ()
    local_loss: Mapping[NodeId, NDArray[np.float32]] = field(default_factory=dict)
    path_loss: Mapping[NodeId, Mapping[NodeId, float]] = field(default_factory=dict)
    positions: Mapping[NodeId, tuple[float, float]] = field(default_factory=dict)
    objective: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The public view of a state.

    Attributes:
        tree: The hierarchy; methods without one show a flat tree.
        models: The models of the nodes that have one; `as_vector` returns a model as one vector.
        served: The model that each client uses.
        shared: What clients share, if sharing is on.
    """

    tree: Tree
    models: Mapping[NodeId, Model]
    served: Mapping[NodeId, Model]
    shared: Shared = field(default_factory=Shared)

    def used_by(self, clients: Iterable[NodeId]) -> dict[NodeId, Model]:
        """The model that each client uses: the served one, or the root's if it has none yet."""
        return {
            client: self.served[client] if client in self.served else self.models[self.tree.root]
            for client in clients
        }


def notes_of(outcomes: Mapping[NodeId, Outcome], fed: Federation) -> Notes:
    """The notes of a round of which there is nothing to say but how training went."""
    return Notes(
        local_loss={client: outcome.losses for client, outcome in outcomes.items()},
        positions=sampled_map(
            {client: outcome.params for client, outcome in outcomes.items()}, fed
        ),
    )


class Method(Protocol[State]):
    """A federated method over states of type `State`; see the module's docstring."""

    def init(self, fed: Federation) -> tuple[State, Notes]:
        """Run the warm-up (`fed.round` is 0) and return the first state."""

    def round(self, state: State, fed: Federation) -> tuple[State, Notes]:
        """Run one round, without changing `state`, and return the next state."""

    def view(self, state: State) -> View: ...
