"""Who is asked in a round, and which of the answers are fit to be used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from sofa_fl.engine.base import Outcome
from sofa_fl.errors import ModelError
from sofa_fl.guard_config import GuardConfig
from sofa_fl.models.flat import Model, Vector, as_vector, distances, mean
from sofa_fl.seeding import rng_for
from sofa_fl.topology.tree import NodeId

NOT_FINITE = "not finite"
FEWEST = 4  # updates of which it can be said that one is out of scale
APART = 3.0  # median distances of starts from their mean: as far as a client may move


@dataclass(slots=True)
class Register:
    """Whose updates had to be set aside lately, and who is out for it."""

    flaws: dict[NodeId, int] = field(default_factory=dict)  # rounds in a row
    last: dict[NodeId, int] = field(default_factory=dict)  # of these rounds
    back_at: dict[NodeId, int] = field(default_factory=dict)  # the round of the next chance

    def note(self, client: NodeId, flaw: str | None, round: int, config: GuardConfig) -> None:
        """A client answered, with or without a flaw; several flaws in a round count once.

        A method may train a client several times in a round, and a fault hits all of these.
        """
        if self.last.get(client) == round:
            return
        if flaw is None:
            for record in (self.flaws, self.last, self.back_at):
                record.pop(client, None)
            return
        self.flaws[client], self.last[client] = self.flaws.get(client, 0) + 1, round
        if self.flaws[client] >= config.patience:
            self.back_at[client] = round + 1 + config.quarantine

    def is_out(self, client: NodeId, round: int) -> bool:
        return round < self.back_at.get(client, 0)

    def keep(self, clients: Collection[NodeId]) -> None:
        """Forget all others."""
        for record in (self.flaws, self.last, self.back_at):
            for client in [c for c in record if c not in clients]:
                del record[client]


@dataclass(slots=True)
class Roll:
    """A round's attendance: whose update arrived and is fit, and why others are not."""

    heard: set[NodeId] = field(default_factory=set)
    set_aside: dict[NodeId, str] = field(default_factory=dict)


def draw(clients: Sequence[NodeId], fraction: float, seed: int, round: int) -> tuple[NodeId, ...]:
    """The clients asked in a round, in their order: this fraction of them, at least one."""
    if fraction == 1:
        return tuple(clients)
    num = max(1, int(fraction * len(clients) + 0.5))
    chosen = rng_for(seed, round, "participation").choice(len(clients), num, replace=False)
    return tuple(clients[at] for at in sorted(chosen.tolist()))


def flaws_of(
    answers: Mapping[int, tuple[Model, Outcome]], size: int, scale: float
) -> dict[int, str]:
    """What is wrong with updates, given where each started; fit ones are not named.

    A model must have `size` finite numbers, and not be farther from its start than `scale` times
    the median. Where each client has a model of its own, it may be as far as these are apart: one
    with new data moves to where others are, while these have nothing left to learn.
    """
    flaws: dict[int, str] = {}
    fitting: list[int] = []
    for at, (_, outcome) in answers.items():
        params = outcome.params
        if params.shape != (size,) or params.dtype != torch.float32:
            shape = "x".join(map(str, params.shape))
            flaws[at] = f"a model of {shape} numbers ({params.dtype}) instead of {size}"
        else:
            fitting.append(at)
    if not fitting:
        return flaws
    ends = [answers[at][1].params for at in fitting]
    lengths = distances(ends, (as_vector(answers[at][0]) for at in fitting))
    values = torch.stack(lengths).double().cpu().numpy()
    finite = np.isfinite(values)
    usual = float(np.median(values[finite])) if finite.sum() >= FEWEST else 0.0
    usual = usual or np.inf  # of few updates, or of none that move, none is out of scale
    limit = scale * usual
    if (values[finite] > limit).any():
        limit = max(limit, APART * median_distance([as_vector(answers[at][0]) for at in fitting]))
    for at, length in zip(fitting, values.tolist()):
        if not np.isfinite(length):
            flaws[at] = NOT_FINITE
        elif length > limit:
            flaws[at] = f"{length / usual:.0f} times as long as the median update"
    return flaws


def median_distance(models: Sequence[Vector]) -> float:
    """The median distance of models from their mean."""
    centre = mean(models, [1.0] * len(models))
    lengths = torch.stack(distances(models, [centre] * len(models)))
    return float(np.median(lengths.double().cpu().numpy()))


def refuse_divergence(flaws: Mapping[int, str], num_answers: int, round: int) -> None:
    """Raise if no answer is finite."""
    if flaws and len(flaws) == num_answers and set(flaws.values()) == {NOT_FINITE}:
        raise ModelError(
            f"every model trained in round {round} has values that are not finite; lower "
            "local.learning_rate"
        )
