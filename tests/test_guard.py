"""Who is asked, what is wrong with an answer, and who is out for it and for how long."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.engine.base import Outcome
from sofa_fl.guard import FEWEST, NOT_FINITE, Register, draw, flaws_of
from sofa_fl.guard_config import GuardConfig
from sofa_fl.models.flat import Mix, Vector
from sofa_fl.topology.tree import NodeId

CONFIG = GuardConfig(patience=3, quarantine=5)
SIZE = 4


def clients(n: int) -> list[NodeId]:
    return [NodeId(3 * number + 1) for number in range(n)]


@given(
    n=st.integers(1, 40),
    fraction=st.floats(0, 1, exclude_min=True),
    seed=st.integers(0, 99),
    round=st.integers(1, 99),
)
def test_so_many_are_asked_and_the_same_again(
    n: int, fraction: float, seed: int, round: int
) -> None:
    asked = draw(clients(n), fraction, seed, round)
    assert list(asked) == [client for client in clients(n) if client in asked], "in their order"
    assert len(asked) == max(1, math.floor(fraction * n + 0.5))
    assert asked == draw(clients(n), fraction, seed, round)


def test_everybody_has_the_same_chance() -> None:
    counts = dict.fromkeys(clients(10), 0)
    for round in range(1, 501):
        for client in draw(clients(10), 0.3, 7, round):
            counts[client] += 1
    assert sum(counts.values()) == 500 * 3
    assert all(110 < count < 190 for count in counts.values()), "150 each, but for chance"
    rounds = {draw(clients(10), 0.3, 7, round) for round in range(1, 20)}
    seeds = {draw(clients(10), 0.3, seed, 1) for seed in range(20)}
    assert min(len(rounds), len(seeds)) > 10


def flaws(params: Sequence[Vector], scale: float = 10.0) -> dict[int, str]:
    """Of updates from zero."""
    losses = np.zeros(1, dtype=np.float32)
    answers = {
        10 + at: (torch.zeros(SIZE), Outcome(model, losses)) for at, model in enumerate(params)
    }
    return {at - 10: flaw for at, flaw in flaws_of(answers, SIZE, scale).items()}


def step(length: float) -> Vector:
    """An update so long."""
    return torch.full((SIZE,), length / math.sqrt(SIZE))


def test_nothing_is_wrong_with_updates_of_all_sorts() -> None:
    assert flaws([step(x) for x in (0.0, 0.3, 1.0, 2.0, 9.0)]) == {}
    assert flaws([]) == {}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_none_is_enough(bad: float) -> None:
    broken = step(1.0)
    broken[2] = bad
    assert flaws([step(1.0), broken, step(2.0)]) == {1: NOT_FINITE}
    assert flaws([broken]) == {0: NOT_FINITE}
    assert flaws([broken, broken]) == {0: NOT_FINITE, 1: NOT_FINITE}


def test_a_model_of_another_shape_or_kind() -> None:
    wrong = [
        torch.zeros(SIZE + 1),
        torch.zeros(SIZE - 1),
        torch.zeros(2, SIZE // 2),
        torch.zeros(SIZE, dtype=torch.float64),
        torch.zeros(SIZE, dtype=torch.int32),
        torch.zeros(()),
    ]
    found = flaws([step(1.0), *wrong])
    assert set(found) == {1, 2, 3, 4, 5, 6}
    assert found[1] == "a model of 5 numbers (torch.float32) instead of 4"
    assert found[3] == "a model of 2x2 numbers (torch.float32) instead of 4"
    assert found[4] == "a model of 4 numbers (torch.float64) instead of 4"
    assert set(flaws(wrong)) == set(range(6))


def test_an_update_out_of_scale() -> None:
    usual = [step(x) for x in (0.5, 1.0, 1.0, 1.5)]
    assert flaws([*usual, step(9.9)]) == {}
    assert flaws([*usual, step(50.0)]) == {4: "50 times as long as the median update"}
    assert flaws([*usual, step(50.0)], scale=60.0) == {}
    assert set(flaws([step(40.0), *usual, step(50.0), step(math.nan)])) == {0, 5, 6}


def test_of_few_updates_none_is_out_of_scale() -> None:
    few = [step(1.0)] * (FEWEST - 2)
    assert flaws([*few, step(1e6)]) == {}
    assert flaws([*few, step(1e6), step(math.nan)]) == {FEWEST - 1: NOT_FINITE}
    assert set(flaws([step(1.0), *few, step(1e6)])) == {FEWEST - 1}


def test_where_nobody_else_moves_one_may() -> None:
    """There is no scale then to be out of."""
    assert flaws([step(0.0)] * 5 + [step(0.1)]) == {}
    assert flaws([step(0.0)] * 5 + [step(math.nan)]) == {5: NOT_FINITE}


def test_where_clients_start_apart_one_may_move_as_far_as_that() -> None:
    """Four have nothing left to learn, and the fifth gets the data of another."""
    losses = np.zeros(1, dtype=np.float32)
    starts = [step(100.0 * at) for at in range(5)]  # median distance from their mean: 100

    def found(last: float) -> set[int]:
        ends = [start + step(0.1) for start in starts[:4]] + [starts[4] - step(last)]
        answers = {at: (starts[at], Outcome(ends[at], losses)) for at in range(5)}
        return set(flaws_of(answers, SIZE, 10.0))

    assert found(299.0) == set()
    assert found(301.0) == {4}
    same = {at: (starts[0], Outcome(starts[0] + step(0.1), losses)) for at in range(4)}
    same[4] = starts[0], Outcome(starts[0] + step(99.0), losses)
    assert set(flaws_of(same, SIZE, 10.0)) == {4}, "all start alike"


def test_an_update_is_counted_from_where_it_started() -> None:
    far = torch.full((SIZE,), 1e4)
    mix = Mix((far, 3 * far), (0.5, 0.5))
    losses = np.zeros(1, dtype=np.float32)
    answers = {at: (mix, Outcome(2 * far + step(1.0), losses)) for at in range(4)}
    answers[4] = (mix, Outcome(far, losses))
    assert set(flaws_of(answers, SIZE, 10.0)) == {4}


CLIENT, OTHER = NodeId(5), NodeId(6)


def test_quarantine_after_so_many_flaws_in_a_row() -> None:
    register = Register()
    for round in (1, 2):
        register.note(CLIENT, NOT_FINITE, round, CONFIG)
        assert not register.is_out(CLIENT, round + 1)
    register.note(CLIENT, NOT_FINITE, 3, CONFIG)
    assert [register.is_out(CLIENT, round) for round in range(4, 10)] == [True] * 5 + [False]
    assert not register.is_out(OTHER, 4)


def test_flaws_in_one_round_count_once() -> None:
    """A method that trains a client three times in a round would end its patience at once."""
    register = Register()
    for round in (1, 2, 3):
        assert not register.is_out(CLIENT, round)
        for flaw in (NOT_FINITE, NOT_FINITE, None, NOT_FINITE):
            register.note(CLIENT, flaw, round, CONFIG)
    assert register.flaws == {CLIENT: 3}
    assert register.is_out(CLIENT, 4)


def test_a_good_update_in_between_is_forgiven() -> None:
    register = Register()
    for round, flaw in enumerate([NOT_FINITE, NOT_FINITE, None, NOT_FINITE, NOT_FINITE]):
        register.note(CLIENT, flaw, round, CONFIG)
        assert not register.is_out(CLIENT, round + 1)


def test_who_comes_back_is_out_again_at_the_next_flaw() -> None:
    register = Register()
    for round in (1, 2, 3):
        register.note(CLIENT, NOT_FINITE, round, CONFIG)
    register.note(CLIENT, NOT_FINITE, 9, CONFIG)
    assert [register.is_out(CLIENT, round) for round in range(10, 16)] == [True] * 5 + [False]


def test_who_comes_back_and_does_well_has_a_clean_slate() -> None:
    register = Register()
    for round in (1, 2, 3):
        register.note(CLIENT, NOT_FINITE, round, CONFIG)
    register.note(CLIENT, None, 9, CONFIG)
    assert register == Register()
    for round in (10, 11):
        register.note(CLIENT, NOT_FINITE, round, CONFIG)
        assert not register.is_out(CLIENT, round + 1)


def test_those_who_left_are_forgotten() -> None:
    register = Register()
    for round in (1, 2, 3):
        register.note(CLIENT, NOT_FINITE, round, CONFIG)
    register.note(OTHER, NOT_FINITE, 3, CONFIG)
    register.keep([OTHER])
    assert register == Register(flaws={OTHER: 1}, last={OTHER: 3})
    assert not register.is_out(CLIENT, 4), "or a newcomer of that number would be"


def test_patience_of_one() -> None:
    register = Register()
    register.note(CLIENT, NOT_FINITE, 2, GuardConfig(patience=1, quarantine=1))
    assert [register.is_out(CLIENT, round) for round in (3, 4)] == [True, False]
