"""What noised answers cost, by dp-accounting and by known values."""

from __future__ import annotations

import math

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from sofa_fl.errors import ConfigError
from sofa_fl.privacy.accounting import ORDERS, Budgets, Cost, epsilon_of, least_noise, sampling_rate
from sofa_fl.topology.tree import NodeId

DELTA = 1e-5


def test_costs_are_those_of_the_accountant() -> None:
    assert epsilon_of([], DELTA) == 0
    accountant = RdpAccountant(ORDERS)
    step = dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(1.1))
    accountant.compose(dp_event.SelfComposedDpEvent(step, 200))
    accountant.compose(dp_event.GaussianDpEvent(20.0))
    costs = [Cost(0.05, 1.1, 150), Cost(1.0, 20.0), Cost(0.05, 1.1, 50)]
    assert epsilon_of(costs, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-12)


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.05, 1.1, 200), (1.0, 10.0, 50)])
def test_costs_are_above_the_tight_ones_but_not_far(rate: float, noise: float, steps: int) -> None:
    """The privacy loss distribution gives nearly exact values; Rényi divergences bound them."""
    tight = PLDAccountant()
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    tight.compose(dp_event.SelfComposedDpEvent(event, steps))
    exact = tight.get_epsilon(DELTA)
    assert exact <= epsilon_of([Cost(rate, noise, steps)], DELTA) <= 1.25 * exact


def test_costs_are_those_of_the_gaussian_mechanism() -> None:
    """Balle and Wang (2018): the noise at which one release has this delta exactly."""

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    noise = 4.0
    epsilon = epsilon_of([Cost(1.0, noise)], DELTA)
    a, b = 1 / (2 * noise), epsilon * noise
    assert phi(a - b) - math.exp(epsilon) * phi(-a - b) <= DELTA


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 8.0])
def test_the_least_noise_is_enough_and_hardly_more(epsilon: float) -> None:
    others = (Cost(1.0, 20.0),)
    noise = least_noise(epsilon, DELTA, Cost(0.1, 0.0, 125), others)
    assert epsilon_of([Cost(0.1, noise, 125), *others], DELTA) <= epsilon
    assert epsilon_of([Cost(0.1, noise * 0.99, 125), *others], DELTA) > epsilon


def test_no_noise_is_enough_where_others_cost_it_all() -> None:
    with pytest.raises(ConfigError, match=r"no amount of noise achieves privacy\.epsilon=0\.1"):
        least_noise(0.1, DELTA, Cost(0.1, 0.0, 10), (Cost(1.0, 1.0),))


def test_batches_are_drawn_sample_by_sample() -> None:
    assert sampling_rate(1000, 50) == 0.05
    assert sampling_rate(10, 50) == 1


def test_budgets_end_and_go_on_where_they_were() -> None:
    account = NodeId(3), "train"
    budgets = Budgets(3.0, DELTA)
    cost, given = Cost(0.05, 1.0, 5), 0
    while budgets.spend((NodeId(3), "train"), cost):
        given += 1
        assert budgets.epsilon_spent() <= 3.0
    assert given > 3
    assert not budgets.spend((NodeId(3), "train"), cost)
    assert epsilon_of([Cost(0.05, 1.0, 5 * given + 5)], DELTA) > 3.0
    assert budgets.spend((NodeId(3), "holdout"), cost), "other samples"
    assert budgets.spend((NodeId(4), "train"), cost), "another client"
    again = Budgets(3.0, DELTA)
    again.restore(budgets.saved())
    assert again.spent == budgets.spent
    assert not again.spend((NodeId(3), "train"), cost)
    assert account in again.spent


def test_a_plan_that_costs_too_much_is_none() -> None:
    budgets = Budgets(1.0, DELTA)
    budgets.plan((NodeId(0), "train"), Cost(1.0, 1.0, 10))
    assert not budgets.spend((NodeId(0), "train"), Cost(1.0, 1.0, 10))
    budgets.plan((NodeId(0), "train"), Cost(1.0, 100.0, 10))
    assert budgets.spend((NodeId(0), "train"), Cost(1.0, 100.0, 10))
