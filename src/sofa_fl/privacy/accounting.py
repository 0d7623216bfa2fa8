"""What noised answers cost, and what every client's may still cost, by part of its samples.

Google's dp-accounting adds it up, by Rényi divergences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from sofa_fl.errors import ConfigError
from sofa_fl.topology.tree import NodeId

ORDERS = [*range(2, 64), 80, 96, 128, 192, 256, 512]  # of the divergences that are added up
PRECISION = 1e-3  # to which the least noise is found
MOST_NOISE = 1e6
SamplePart = Literal["train", "holdout"]
Account = tuple[NodeId, SamplePart]
Steps = dict[tuple[float, float], int]  # by rate and noise


@dataclass(frozen=True, slots=True)
class Cost:
    """`steps` releases of a sum over samples, each drawn with probability `rate`, with noise."""

    rate: float
    noise: float
    steps: int = 1


def sampling_rate(num_samples: int, batch_size: int) -> float:
    """The probability with which a sample is in a batch."""
    return min(1.0, batch_size / num_samples)


def epsilon_of(costs: Iterable[Cost], delta: float) -> float:
    """What costs add up to."""
    steps: Counter[tuple[float, float]] = Counter()
    for cost in costs:
        steps[cost.rate, cost.noise] += cost.steps
    return _epsilon(tuple(sorted(steps.items())), delta)


@lru_cache(maxsize=1000)
def least_noise(epsilon: float, delta: float, cost: Cost, others: tuple[Cost, ...] = ()) -> float:
    """The least noise with which `cost`, whose own noise is ignored, and `others` cost `epsilon`.

    It is rounded up, so that the whole costs no more.
    """

    def total(noise: float) -> float:
        return epsilon_of([replace(cost, noise=noise), *others], delta)

    if epsilon_of(others, delta) >= epsilon or total(MOST_NOISE) > epsilon:
        raise ConfigError(
            f"no amount of noise achieves privacy.epsilon={epsilon:g} with "
            f"privacy.delta={delta:g}; raise privacy.epsilon or privacy.count_noise"
        )
    low, high = 0.0, 1.0
    while total(high) > epsilon:
        low, high = high, 2 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if total(middle) <= epsilon else (middle, high)
    return high


@lru_cache(maxsize=1000)
def _epsilon(steps: tuple[tuple[tuple[float, float], int], ...], delta: float) -> float:
    if not steps:
        return 0.0
    try:
        from dp_accounting import dp_event
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise ConfigError(
            "privacy.epsilon needs dp-accounting; install it with: pip install 'sofa-fl[private]'"
        ) from None
    accountant = RdpAccountant(ORDERS)
    for (rate, noise), count in steps:
        event: Any = dp_event.GaussianDpEvent(noise)
        if rate < 1:
            event = dp_event.PoissonSampledDpEvent(rate, event)
        accountant.compose(dp_event.SelfComposedDpEvent(event, count))
    return float(accountant.get_epsilon(delta))


@dataclass(slots=True)
class Budgets:
    """A budget of `epsilon` for either part of every client's samples.

    Attributes:
        planned: Costs that were found to fit together; up to these nothing is computed again.
    """

    epsilon: float
    delta: float
    planned: dict[Account, Steps] = field(default_factory=dict)
    spent: dict[Account, Steps] = field(default_factory=lambda: defaultdict(dict))

    def plan(self, account: Account, *costs: Cost) -> None:
        """Note costs that together cost no more than the budget."""
        if self._cost({(cost.rate, cost.noise): cost.steps for cost in costs}) <= self.epsilon:
            self.planned[account] = {(cost.rate, cost.noise): cost.steps for cost in costs}

    def spend(self, account: Account, cost: Cost) -> bool:
        """Note a cost, and return True; return False, and note nothing, if it is too much."""
        after = dict(self.spent[account])
        kind = cost.rate, cost.noise
        after[kind] = after.get(kind, 0) + cost.steps
        planned = self.planned.get(account, {})
        fits = all(steps <= planned.get(kind, 0) for kind, steps in after.items())
        if not fits and self._cost(after) > self.epsilon:
            return False
        self.spent[account] = after
        return True

    def epsilon_spent(self) -> float:
        """The most that any part of any client's samples has cost."""
        different = {tuple(sorted(steps.items())) for steps in self.spent.values()}
        return max((self._cost(dict(steps)) for steps in different), default=0.0)

    def _cost(self, steps: Steps) -> float:
        costs = [Cost(rate, noise, num) for (rate, noise), num in steps.items()]
        return epsilon_of(costs, self.delta)

    def saved(self) -> tuple[tuple[int, str, float, float, int], ...]:
        """All that was spent, as a checkpoint keeps it."""
        return tuple(
            (int(client), part, rate, noise, steps)
            for (client, part), kinds in self.spent.items()
            for (rate, noise), steps in kinds.items()
        )

    def restore(self, saved: tuple[tuple[int, str, float, float, int], ...]) -> None:
        """Go back to what `saved` returned."""
        self.spent.clear()
        for client, part, rate, noise, steps in saved:
            account: Account = NodeId(client), "train" if part == "train" else "holdout"
            self.spent[account][rate, noise] = steps
