"""What a method sees of the world: the clients, whose samples are whose, and an engine.

What a round costs (samples trained on, bytes sent) is counted here, alike for all methods.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sofa_fl.data.federated_data import FederatedData, Samples, Stage
from sofa_fl.engine.base import (
    Engine,
    Exam,
    LocalConfig,
    Meter,
    Outcome,
    Prior,
    Pull,
    Score,
    Task,
)
from sofa_fl.guard import Register, Roll, draw, flaws_of, refuse_divergence
from sofa_fl.guard_config import GuardConfig
from sofa_fl.models.flat import Model, Vector, aggregate
from sofa_fl.present import EvaluateConfig, Present
from sofa_fl.privacy.private_engine import NOT_SCORED, PrivateEngine
from sofa_fl.seeding import seed_for
from sofa_fl.topology.tree import NodeId

Asks = Sequence[tuple[NodeId, Model]]  # pairs of a client and a model


@dataclass(frozen=True)
class Federation:
    """The clients, their samples and the engine that trains them, at a round.

    Attributes:
        warmup: Batches per client before the first round; every method gets them.
        round: 0 is the warm-up.
        rounds: How many follow it; 0 is unknown.
        participation, warmup_participation: The fraction of the clients that are asked.
        lossy: Whether clients who are asked may well not answer.
        guard: Which of their answers are used.
        evaluate: Whose scores are taken, and when.
        meter, register: What lasts from round to round.
        roll: Who was heard in this round.
        stages: What was found out of the stage that a round was in last; for `present`.
        privacy: The part of the engine that noises what clients answer, if any does.
        has_scores: Whether clients tell what models lose on their held-out samples.
    """

    data: FederatedData
    engine: Engine
    local: LocalConfig
    seed: int = 0
    warmup: int = 25
    round: int = 0
    rounds: int = 0
    participation: float = 1.0
    lossy: bool = False
    guard: GuardConfig = field(default_factory=GuardConfig)
    meter: Meter = field(default_factory=Meter)
    register: Register = field(default_factory=Register)
    roll: Roll = field(default_factory=Roll)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    warmup_participation: float = 1.0
    stages: list[Present] = field(default_factory=list, repr=False)
    privacy: PrivateEngine | None = None
    has_scores: bool = True

    def at(self, round: int) -> Federation:
        """The same federation at another round."""
        return replace(self, round=round, roll=Roll())

    @cached_property
    def stage(self) -> Stage:
        """What the data are in this round."""
        return self.data.stage(self.round)

    @cached_property
    def present(self) -> Present:
        """Those who are there in this round, and what they have."""
        stage = self.stage
        for known in self.stages:
            if known.stage is stage and known.data is self.data:
                return known
        noised = None if self.privacy is None else self.privacy.class_counts
        self.stages[:] = [Present(self.data, stage, self.local.prior, noised)]
        return self.stages[0]

    @property
    def clients(self) -> tuple[NodeId, ...]:
        """Those who are there in this round, whether or not they answer."""
        return self.present.clients

    @property
    def first_id(self) -> int:
        """The first number that no client ever has."""
        return self.data.first_id

    @property
    def may_miss(self) -> bool:
        """Whether some clients may not contribute to a round."""
        return self.participation < 1 or self.lossy

    @cached_property
    def cohort(self) -> tuple[NodeId, ...]:
        """The clients that are asked to train in this round, in the order of `clients`."""
        fit: Sequence[NodeId] = self.clients
        if self.register.back_at:
            fit = [client for client in fit if not self.register.is_out(client, self.round)]
        fraction = self.participation if self.round else self.warmup_participation
        return draw(fit, fraction, self.seed, self.round) if fit else ()

    @cached_property
    def asked(self) -> frozenset[NodeId]:
        """The cohort as a set."""
        return frozenset(self.cohort)

    @cached_property
    def measured(self) -> tuple[NodeId, ...]:
        """The clients whose scores are taken in this round; none if no evaluation is due."""
        if self.evaluate.is_complete:
            return self.clients
        if not self.evaluate.is_due(self.round, self.rounds):
            return ()
        return self.evaluate.draw(self.present.tested, self.seed, self.round)

    def has_news(self, client: NodeId) -> bool:
        """Whether a client has new data, or may not have contributed to the last round."""
        return self.may_miss or client in self.register.flaws or self.has_new_data(client)

    def has_new_data(self, client: NodeId, rounds: int = 1) -> bool:
        """Whether a client's samples have changed since the last round, or the last few."""
        before = self.data.stage(max(0, self.round - rounds)).clients.get(client)
        return self.stage.clients[client] is not before

    @property
    def owned(self) -> Mapping[NodeId, Samples]:
        """The samples each client trains on and may share; the held-out ones are neither."""
        return self.present.owned

    def size(self, client: NodeId) -> int:
        return self.present.sizes[client]

    def judged_on(self, client: NodeId) -> Samples:
        """The held-out samples of a client, or, where it has none, those it trains on."""
        held = self.stage.clients[client].holdout
        return held if len(held) else self.owned[client]

    @property
    def priors(self) -> Mapping[NodeId, Prior | None]:
        """What is added to a model's outputs when a client uses it: its own class mix."""
        return self.present.priors

    @cached_property
    def blind_loss(self) -> float:
        """The loss of an answer that does not look: all classes alike, or the mean target."""
        if self.data.train.y.dtype.kind == "f":
            return self.data.target_variance or 1.0
        return math.log(self.data.num_outputs) or 1.0

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
        usual = self.local.batches if self.round else self.warmup
        samples = self.owned[site] if samples is None else samples
        is_own = self.privacy is not None or samples is self.owned.get(site)
        return Task(
            site=site,
            start=start,
            samples=samples,
            batches=usual if batches is None else batches,
            seed=seed_for(self.seed, self.round, site, purpose),
            pulls=tuple(pull for pull in pulls if pull.weight),
            prior=self.priors[site] if is_own else self.present.prior_of(samples),
        )

    def train(self, tasks: Iterable[Task]) -> list[Outcome | None]:
        """Train, and count what it costs; no task is held on to once it is done.

        None is what came of a client that was not asked, did not answer, or sent what cannot be
        used: it keeps what it has.
        """
        sites: list[NodeId] = []
        starts: list[Model | None] = []  # of those who are asked

        def counted() -> Iterator[Task]:
            for task in tasks:
                sites.append(task.site)
                if task.site in self.owned and task.site not in self.asked:
                    starts.append(None)
                    continue
                starts.append(task.start)
                self.meter.samples_trained += task.batches * self.local.batch_size
                self.meter.bytes_down += task.num_bytes
                yield task
                del task

        answers = iter(self.engine.train(counted()))
        outcomes = [None if start is None else next(answers) for start in starts]
        self._inspect(sites, starts, outcomes)
        return outcomes

    def _inspect(
        self, sites: list[NodeId], starts: list[Model | None], outcomes: list[Outcome | None]
    ) -> None:
        """Replace outcomes that cannot be used by None, and record which clients contributed."""
        replied = {
            at: (start, outcome)
            for at, (start, outcome) in enumerate(zip(starts, outcomes))
            if start is not None and outcome is not None
        }
        if not replied:
            return
        size = next(start.nbytes for start, _ in replied.values()) // 4  # numbers of four bytes
        flaws = flaws_of(replied, size, self.guard.scale)
        # A few clients may be faulty; if most are, the training itself diverges.
        if 2 * len({sites[at] for at in replied}) > len(self.clients):
            refuse_divergence(flaws, len(replied), self.round)
        self.meter.bytes_up += sum(start.nbytes for start, _ in replied.values())
        for at in flaws:
            outcomes[at] = None
        found = {sites[at]: flaw for at, flaw in flaws.items()}
        for client in dict.fromkeys(sites[at] for at in replied if sites[at] in self.owned):
            self.register.note(client, found.get(client), self.round, self.guard)
            if client not in found:
                self.roll.heard.add(client)
        self.roll.set_aside |= {site: flaw for site, flaw in found.items() if site in self.owned}

    def held_out(
        self, asks: Asks, *, sent: bool = False, samples: Sequence[Samples] | None = None
    ) -> list[Score]:
        """Score models on the held-out samples of clients, or on `samples`, a set for each pair.

        Models that are `sent` anyway, for training, cost nothing more. A loss may be NaN.
        """
        if not self.has_scores:
            return [NOT_SCORED] * len(asks)
        self.meter.bytes_down += 0 if sent else sum(model.nbytes for _, model in asks)
        return self.engine.evaluate(self._exams(asks, samples))

    def _exams(self, asks: Asks, samples: Sequence[Samples] | None = None) -> list[Exam]:
        samples = samples or [self.judged_on(client) for client, _ in asks]
        return [Exam(m, rows, prior=self.priors[c]) for (c, m), rows in zip(asks, samples)]

    def count_shared(self, up: int, down: int) -> None:
        """Count samples sent up by clients and down to them."""
        sample = self.data.train.x[:1].nbytes + self.data.train.y[:1].nbytes
        self.meter.bytes_up += up * sample
        self.meter.bytes_down += down * sample

    def mean(self, models: Mapping[NodeId, Vector]) -> Vector:
        """The mean of clients' models, weighted by their samples, or what `guard` has for one."""
        sizes = [self.size(client) for client in models]
        return aggregate(list(models.values()), sizes, self.guard.aggregate, self.guard.trim)

    def probe(self, num_samples: int) -> Samples:
        """A fixed batch of training samples, the same in every round."""
        rng = np.random.default_rng(seed_for(self.seed, "probe"))
        rows = np.concatenate(list(self.owned.values()))
        return rng.choice(rows, size=min(num_samples, len(rows)), replace=False)

    def fingerprint(self) -> str:
        """The same for the same samples, dealt out alike, and a model of the same size."""
        return f"{len(self.initial())} {self.data.digest()}"
