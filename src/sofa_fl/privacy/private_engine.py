"""An engine whose clients answer with noise, as long as their budgets last; around any other.

Tasks say how to noise an update, so that every engine does it while it trains. Scores are noised
here. All draws come from the run's seed: a simulation repeats, and protects no real samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import FederatedData, Samples
from sofa_fl.engine.base import (
    Engine,
    EngineAround,
    Exam,
    LocalConfig,
    Noising,
    Outcome,
    Score,
    Task,
)
from sofa_fl.errors import ConfigError, DataError
from sofa_fl.models.flat import Vector
from sofa_fl.privacy.accounting import (
    Account,
    Budgets,
    Cost,
    SamplePart,
    least_noise,
    sampling_rate,
)
from sofa_fl.privacy.config import PrivacyConfig
from sofa_fl.seeding import rng_for
from sofa_fl.topology.tree import NodeId

NOT_SCORED = Score(float("nan"), float("nan"), 0)


class PrivateEngine(EngineAround[Engine]):
    """Another engine, with clients that keep their samples private.

    Args:
        rounds: After the warm-up: what the noise is planned for.
        warmup: Batches per client before them.
    """

    def __init__(
        self,
        engine: Engine,
        data: FederatedData,
        config: PrivacyConfig,
        local: LocalConfig,
        *,
        seed: int,
        rounds: int,
        warmup: int,
    ) -> None:
        if data.stages:
            raise ConfigError(
                "privacy.epsilon needs data that do not change; set data.scenario.name=none"
            )
        if data.train.y.dtype.kind == "f":
            raise DataError("privacy.epsilon needs a classification, but this is a regression")
        super().__init__(engine)
        self.config, self.local, self.seed = config, local, seed
        self.budgets = Budgets(config.epsilon, config.delta)
        self.num_scores = config.scores * (rounds + 1)
        self._owner = np.full(len(data.train), -1, dtype=np.int64)
        self._is_held_out = np.zeros(len(data.train), dtype=np.bool_)
        self.noise: dict[NodeId, float] = {}
        for number, client in enumerate(data.clients):
            self._owner[client.train] = self._owner[client.holdout] = number
            self._is_held_out[client.holdout] = True
            self._plan(NodeId(number), len(client.train), warmup + rounds * local.batches)

    @property
    def scores(self) -> bool:
        """Whether clients score models on their held-out samples."""
        return self.config.scores > 0

    def train(self, tasks: Iterable[Task]) -> list[Outcome | None]:
        """Train with noise; None is what comes of a client whose budget is spent."""
        paid: list[bool] = []

        def noised() -> Iterator[Task]:
            for task in tasks:
                cost = Cost(self._rate(len(task.samples)), self.noise[task.site], task.batches)
                paid.append(self.budgets.spend((task.site, "train"), cost))
                if paid[-1]:
                    config = self.config
                    yield replace(task, noising=Noising(config.clip, cost.noise, config.max_loss))

        answers = iter(self.engine.train(noised()))
        return [next(answers) if is_paid else None for is_paid in paid]

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        """Test samples as they are; others with noise, or NaN where that is not paid for."""
        noise = [self._pay(exam) for exam in exams]
        asked = [
            exam if extra is None else replace(exam, max_loss=self.config.max_loss)
            for exam, extra in zip(exams, noise)
            if extra is None or np.isfinite(extra)
        ]
        answers = iter(self.engine.evaluate(asked))
        return [
            next(answers) if extra is None
            else self._noised(next(answers), extra) if np.isfinite(extra)
            else NOT_SCORED
            for extra in noise
        ]  # fmt: skip

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        raise ConfigError(
            "features of samples would leave without noise; with privacy.epsilon, use a "
            "sofa.position other than latent"
        )

    def class_counts(self, client: NodeId, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """A client's class counts with noise, the same whenever it is asked; none below 0."""
        normal = rng_for(self.seed, client, "class counts").standard_normal(len(counts))
        noised = np.rint(counts + self.config.count_noise * normal).astype(np.int64)
        return np.maximum(noised, 0)

    def _plan(self, client: NodeId, num_samples: int, steps: int) -> None:
        """Find the noise with which all that is planned costs `epsilon`."""
        config, rate = self.config, self._rate(num_samples)
        counts = (Cost(1.0, config.count_noise),) if self.local.prior else ()
        training = Cost(rate, config.noise or 0.0, steps)
        if config.noise is None:
            found = least_noise(config.epsilon, config.delta, training, counts)
            training = replace(training, noise=found)
        self.noise[client] = training.noise
        self.budgets.plan((client, "train"), training, *counts)
        for cost in counts:  # `class_counts` gives them, again and again the same
            self.budgets.spend((client, "train"), cost)
        if self.num_scores:
            self.budgets.plan((client, "holdout"), Cost(1.0, self.score_noise, self.num_scores))

    @property
    def score_noise(self) -> float:
        config = self.config
        if config.score_noise is not None:
            return config.score_noise
        return least_noise(config.epsilon, config.delta, Cost(1.0, 0.0, self.num_scores))

    def _rate(self, num_samples: int) -> float:
        return sampling_rate(num_samples, self.local.batch_size)

    def _account(self, samples: Samples) -> Account:
        """Whose samples these are: all of one client, and of one part."""
        first = samples[0]
        part: SamplePart = "holdout" if self._is_held_out[first] else "train"
        same = (self._owner[samples] == self._owner[first]).all()
        if not same or not (self._is_held_out[samples] == self._is_held_out[first]).all():
            raise ConfigError(
                "with privacy.epsilon, a model can be scored only on the samples of one client; "
                "use another method"
            )
        return NodeId(int(self._owner[first])), part

    def _pay(self, exam: Exam) -> float | None:
        """The noise of a score's summed loss; None for none, NaN for a score that is not given."""
        if exam.split == "test" or not len(exam.samples):
            return None
        if not self.scores:
            return float("nan")
        account = self._account(exam.samples)
        number = sum(self.budgets.spent[account].values())
        if not self.budgets.spend(account, Cost(1.0, self.score_noise)):
            return float("nan")
        draw = rng_for(self.seed, account[0], account[1], number, "score").standard_normal()
        return self.score_noise * self.config.max_loss * float(draw)

    def _noised(self, score: Score, extra: float) -> Score:
        """The loss with noise; whether single samples were recognized is not told."""
        num, most = score.num_samples, self.config.max_loss
        return Score(min(max(score.loss + extra / num, 0.0), most), float("nan"), num)
