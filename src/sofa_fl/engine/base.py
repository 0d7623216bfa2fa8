"""The engine interface: train these tasks, evaluate these exams.

A task carries no data, only which samples: so the same task runs in a loop on a CPU, stacked
with others on a GPU, in a worker process or as one message to another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Samples, SplitName
from sofa_fl.engine.config import LocalConfig as LocalConfig
from sofa_fl.engine.config import Precision as Precision
from sofa_fl.models.flat import Model, Vector
from sofa_fl.topology.tree import NodeId

Key = TypeVar("Key")
TrainedPart = Literal["all", "body", "head"]  # the head is the output layer, the body all below it
Prior = NDArray[np.float32]  # log of how common each class is; is added to a network's outputs


@dataclass(frozen=True, slots=True)
class Pull:
    """Adds `weight` · ‖x − target‖² to the loss (over the trainable parameters)."""

    target: Vector
    weight: float


@dataclass(frozen=True, slots=True)
class Noising:
    """How a training keeps its samples private (see `engine/private.py`).

    Attributes:
        clip: Length to which the gradient of a sample is cut.
        noise: Of a batch's summed gradients, in units of what one sample can change.
        max_loss: Value to which the loss of a sample is cut.
    """

    clip: float
    noise: float
    max_loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One local training: who, from which model, on which samples, pulled where, by which draws.

    `prior` is added to the outputs; only the `part` of the network is trained, and the rest of the
    model stays as it is. Pulls whose weights add up to zero are a constant gradient (see
    `constant_gradient`). With `noising` the training is private. `learning_rate` is None, the
    configured one, unless what is trained is not what the method's rule steps on (APFL's mixture).
    """

    site: NodeId
    start: Model
    samples: Samples
    batches: int
    seed: int
    pulls: tuple[Pull, ...] = ()
    prior: Prior | None = None
    part: TrainedPart = "all"
    noising: Noising | None = None
    learning_rate: float | None = None

    @property
    def num_bytes(self) -> int:
        """What of it travels: each model once, and of several pulls only their sum."""
        target = self.pulls[0].target if len(self.pulls) == 1 else None
        return self.start.nbytes * (2 if self.pulls and target is not self.start else 1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The model after a task, and the loss of every batch (the pulls left out)."""

    params: Vector
    losses: NDArray[np.float32]


def answered(keys: Iterable[Key], outcomes: Iterable[Outcome | None]) -> dict[Key, Outcome]:
    """The outcomes there are, by key."""
    return {key: outcome for key, outcome in zip(keys, outcomes) if outcome is not None}


@dataclass(frozen=True, slots=True)
class Exam:
    """One evaluation: which model on which samples; `prior` is added to its outputs.

    The loss of a sample counts up to `max_loss`, if there is one.
    """

    params: Model
    samples: Samples
    split: SplitName = "train"
    prior: Prior | None = None
    max_loss: float | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """Mean loss and accuracy of a model on `num_samples` samples."""

    loss: float
    accuracy: float
    num_samples: int


@dataclass(slots=True)
class Meter:
    """What a run has cost so far."""

    samples_trained: int = 0
    bytes_down: int = 0  # to the clients
    bytes_up: int = 0  # from the clients


class Engine(Protocol):
    """Runs tasks and exams; results come in the order asked and depend on nothing but the ask."""

    @property
    def num_trainable(self) -> int:
        """How many entries of a model are trained; the rest are buffers."""

    @property
    def num_head(self) -> int:
        """How many of those, the last of them, are the head's."""

    def initial(self, seed: int) -> Vector:
        """The untrained model."""

    def train(self, tasks: Iterable[Task]) -> Sequence[Outcome | None]:
        """The outcomes; tasks may be drawn as they are needed, so not all of them need exist.

        None stands for a task that nobody answered.
        """

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]: ...

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        """Mean features (what the last layer is given) of every model on the same samples."""

    def close(self) -> None:
        """Let go of processes and memory; the engine is not used afterwards."""


class SureEngine(Engine, Protocol):
    """An engine that answers every task, as all do whose clients are simulated."""

    def train(self, tasks: Iterable[Task]) -> list[Outcome]: ...


E = TypeVar("E", bound=Engine)


class EngineAround(Generic[E]):
    """An engine around another one, by which all is done that it does not do itself."""

    def __init__(self, engine: E) -> None:
        self.engine = engine

    @property
    def num_trainable(self) -> int:
        return self.engine.num_trainable

    @property
    def num_head(self) -> int:
        return self.engine.num_head

    def initial(self, seed: int) -> Vector:
        return self.engine.initial(seed)

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        return self.engine.evaluate(exams)

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        return self.engine.embed(models, samples)

    def close(self) -> None:
        self.engine.close()


def constant_gradient(plus: Vector, minus: Vector) -> tuple[Pull, Pull]:
    """Two pulls that add `plus` - `minus` to every gradient, and nothing else."""
    return Pull(plus, -0.5), Pull(minus, 0.5)


def batch_order(num_samples: int, batches: int, batch_size: int, seed: int) -> Samples:
    """Which sample stands where: `(batches, batch_size)` positions below `num_samples`.

    Shuffled passes over all samples, one after the other, so that every batch is full and no
    sample is seen a second time before all were seen once.
    """
    rng = np.random.default_rng(seed)
    needed = batches * batch_size
    passes = -(-needed // num_samples)
    order = np.concatenate([rng.permutation(num_samples) for _ in range(passes)])
    return order[:needed].reshape(batches, batch_size)
