"""What noised answers cost: Google's dp-accounting adds it up, by Rényi divergences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sofa_fl.errors import ConfigError

ORDERS = [*range(2, 64), 80, 96, 128, 192, 256, 512]  # of the divergences that are added up
PRECISION = 1e-3  # to which the least noise is found
MOST_NOISE = 1e6


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
