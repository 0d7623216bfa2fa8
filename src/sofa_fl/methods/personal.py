"""What methods have in common that keep a FedAvg model and, beside it, a model of every client."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sofa_fl.engine.base import Outcome, Task, answered
from sofa_fl.federation import Federation
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.clustered import ClusteredState
from sofa_fl.methods.method import Notes, View
from sofa_fl.models.flat import Model, Vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True)
class PersonalState:
    average: ClusteredState
    personal: dict[NodeId, Vector]


class BesideFedAvg:
    """A method that trains FedAvg's model for all, and more beside it."""

    __slots__ = ()
    sharing: SharingConfig

    @property
    def base(self) -> FedAvg:
        return FedAvg(self.sharing)


class PersonalMethod(BesideFedAvg):
    """One whose state is FedAvg's model and those of the clients."""

    __slots__ = ()

    def init(self, fed: Federation) -> tuple[PersonalState, Notes]:
        """The same untrained model for all; the warm-up is a first round."""
        average = self.base.start(fed)
        models = dict.fromkeys(fed.clients, average.models[0])
        return self.round(PersonalState(average, models), fed)

    @abstractmethod
    def round(self, state: PersonalState, fed: Federation) -> tuple[PersonalState, Notes]: ...


def two_parts(fed: Federation, share: float) -> tuple[int, int]:
    """The budget of a round in two: `share` of the batches, and the rest; neither is empty.

    A budget of a single batch cannot be divided, so it is spent twice.
    """
    budget = fed.local.batches if fed.round else fed.warmup
    first = min(max(1, round(share * budget)), max(1, budget - 1))
    return first, max(1, budget - first)


def head_of(fed: Federation) -> slice:
    """Where in a model its head is."""
    end = fed.engine.num_trainable
    return slice(end - fed.engine.num_head, end)


def with_head(model: Vector, head: Vector, fed: Federation) -> Vector:
    """A model with another head; the model itself is not changed."""
    made = model.clone()
    made[head_of(fed)] = head
    return made


def train(fed: Federation, tasks: Sequence[Task]) -> dict[NodeId, Outcome]:
    """The outcomes of a task per client, of those that answered."""
    return answered([task.site for task in tasks], fed.train(tasks))


def view_of(
    average: ClusteredState,
    base: FedAvg,
    models: Mapping[NodeId, Model],
    served: Mapping[NodeId, Model],
) -> View:
    """The view of FedAvg, with models of clients and what they are served instead of its own."""
    view = base.view(average)
    return View(tree=view.tree, models={**view.models, **models}, served=served, shared=view.shared)
