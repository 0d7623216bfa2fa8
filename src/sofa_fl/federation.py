"""What a method sees of the world: the clients, whose samples are whose, and an engine.

Everything a round costs (samples trained on, bytes a network would carry) is counted here,
the same way for all methods.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import FederatedData, Samples
from sofa_fl.engine.base import Engine, Exam, LocalConfig, Outcome, Prior, Pull, Score, Task
from sofa_fl.errors import ModelError
from sofa_fl.models.flat import Vector, mean
from sofa_fl.models.mix import Model
from sofa_fl.seeding import seed_for
from sofa_fl.topology.tree import NodeId


@dataclass(slots=True)
class Meter:
    """What a run has cost so far."""

    samples_trained: int = 0
    bytes_down: int = 0  # to the clients
    bytes_up: int = 0  # from the clients


@dataclass(frozen=True)
class Federation:
    """The clients, their samples and the engine that trains them, at one round of a run.

    Attributes:
        warmup: Batches per client before the first round; every method gets them.
        round: 0 is the warm-up.
        rounds: How many there will be after it: the learning rate falls until then. 0 if nobody
            knows, and it stays what it is.
    """

    data: FederatedData
    engine: Engine
    local: LocalConfig
    seed: int = 0
    warmup: int = 25
    round: int = 0
    rounds: int = 0
    meter: Meter = field(default_factory=Meter)

    def at(self, round: int) -> Federation:
        """The same federation at another round."""
        return replace(self, round=round)

    @cached_property
    def clients(self) -> tuple[NodeId, ...]:
        return tuple(NodeId(i) for i in range(len(self.data.clients)))

    @cached_property
    def owned(self) -> Mapping[NodeId, Samples]:
        """The samples each client trains on and may share; the held-out ones are neither."""
        return {client: self.data.clients[client].train for client in self.clients}

    def size(self, client: NodeId) -> int:
        return len(self.owned[client])

    def judged_on(self, client: NodeId) -> Samples:
        """The held-out samples of a client, or, where it has none, those it trains on."""
        held = self.data.clients[client].holdout
        return held if len(held) else self.owned[client]

    @cached_property
    def priors(self) -> Mapping[NodeId, Prior | None]:
        """What is added to a model's outputs when a client uses it: its own class mix."""
        return {client: self.prior_of(self.owned[client]) for client in self.clients}

    def prior_of(self, samples: Samples) -> Prior | None:
        """The log of how common each class is in `samples`, one more than counted of each."""
        if not self.local.prior or self.data.train.y.dtype.kind == "f":
            return None
        return log_shares(self.data.class_counts(samples))

    @cached_property
    def blind_loss(self) -> float:
        """The loss of an answer that does not look: all classes alike, or the mean target."""
        if self.data.train.y.dtype.kind == "f":
            return self.data.target_variance or 1.0
        return math.log(self.data.num_outputs) or 1.0

    @property
    def pace(self) -> float:
        """The fraction of the learning rate in this round."""
        last = self.local.final_rate
        done = min(self.round, self.rounds) / self.rounds if self.rounds else 0.0
        return last + (1 - last) * 0.5 * (1 + math.cos(math.pi * done))

    def initial(self, index: int = 0) -> Vector:
        """An untrained model; another `index` gives another one."""
        return self.engine.initial(seed_for(self.seed, index, "initial"))

    def task(
        self,
        site: NodeId,
        start: Model,
        samples: Samples | None = None,
        *,
        pulls: Sequence[Pull] = (),
        batches: int | None = None,
        purpose: str = "train",
    ) -> Task:
        """A task for this round: the usual budget, the site's own samples, draws of its own."""
        if batches is None:
            batches = self.local.batches if self.round else self.warmup
        samples = self.owned[site] if samples is None else samples
        return Task(
            site=site,
            start=start,
            samples=samples,
            batches=batches,
            seed=seed_for(self.seed, self.round, site, purpose),
            pulls=tuple(pull for pull in pulls if pull.weight),
            pace=self.pace,
            prior=self.prior_of(samples),
        )

    def train(self, tasks: Iterable[Task]) -> list[Outcome]:
        """Train, and count what it costs; no task is held on to once it is done."""
        sites: list[NodeId] = []

        def counted() -> Iterator[Task]:
            for task in tasks:
                sites.append(task.site)
                self.meter.samples_trained += task.batches * self.local.batch_size
                self.meter.bytes_down += _bytes(task.start, *(pull.target for pull in task.pulls))
                self.meter.bytes_up += _bytes(task.start)
                yield task
                del task

        outcomes = self.engine.train(counted())
        for site, outcome in zip(sites, outcomes):
            if not math.isfinite(float(outcome.params.sum())):
                raise ModelError(
                    f"the model that node {site} trained is not finite in round {self.round}; "
                    "lower local.learning_rate"
                )
        return outcomes

    def held_out(self, asks: Sequence[tuple[NodeId, Model]]) -> list[Score]:
        """Score models on the held-out samples of clients, `(client, model)` by pair."""
        self.meter.bytes_down += sum(_bytes(model) for _, model in asks)
        return self.engine.evaluate(
            [Exam(model, self.judged_on(c), prior=self.priors[c]) for c, model in asks]
        )

    def count_shared(self, up: int, down: int) -> None:
        """Count samples sent up by clients and down to them."""
        sample = self.data.train.x[:1].nbytes + self.data.train.y[:1].nbytes
        self.meter.bytes_up += up * sample
        self.meter.bytes_down += down * sample

    def mean(self, models: Mapping[NodeId, Vector]) -> Vector:
        """The mean of clients' models, weighted by their samples."""
        return mean(list(models.values()), [self.size(client) for client in models])

    def probe(self, num_samples: int) -> Samples:
        """A fixed batch of training samples, the same in every round."""
        rng = np.random.default_rng(seed_for(self.seed, "probe"))
        rows = np.concatenate(list(self.owned.values()))
        return rng.choice(rows, size=min(num_samples, len(rows)), replace=False)

    def fingerprint(self) -> str:
        """The same for the same samples, dealt out alike, and a model of the same size."""
        return f"{len(self.initial())} {self.data.digest()}"


def log_shares(counts: NDArray[np.int64]) -> Prior:
    """The log of how common each class is, one more than counted of each."""
    more = counts + 1
    shares: Prior = np.log(more / more.sum()).astype(np.float32)
    return shares


def _bytes(*models: Model) -> int:
    return sum(model.nbytes for model in models)
