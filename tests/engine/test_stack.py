"""What a step of many clients must know of their pulls."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
import torch

from sofa_fl.engine.base import Pull
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine, round_up
from sofa_fl.engine.stepper import Pulls
from tests.engine.cases import DATA, ENGINES, LOCAL, MLP, assert_same, task

NOTHING = torch.zeros(3)


def test_a_weight_decay_that_all_agree_on_is_the_optimizers() -> None:
    assert Pulls.of([]) == Pulls(some=False)
    assert Pulls.of([(0.5, NOTHING), (0.5, NOTHING)]) == Pulls(True, 0.5)


def test_a_step_does_not_depend_on_how_clients_differ() -> None:
    """Or it would be captured anew whenever a cluster grows."""
    first, second = (Pulls.of([(0.5, NOTHING), (x, NOTHING)]) for x in (0.25, 0.75))
    assert first == second == Pulls(True, differ=True)


@pytest.mark.parametrize("weights", [(0.1, 0.1, 0.1), (0.1, 0.3, 0.02), (0.1, 0.0, 0.1)])
def test_pulls_of_any_kind_go_together(weights: tuple[float, ...]) -> None:
    stacked = next(case for case in ENGINES if case.name == "stacked")
    plain, engine = SequentialEngine(MLP, DATA, LOCAL), StackedEngine(MLP, DATA, LOCAL, "cpu")
    with closing(plain), closing(engine):
        start, target = plain.initial(0), plain.initial(1)
        tasks = [
            replace(task(start, client), pulls=(Pull(target, w),) if w else ())
            for client, w in enumerate(weights)
        ]
        for _ in range(2):  # the second time with what the first left in the optimizer
            assert_same(engine.train(tasks), plain.train(tasks), stacked)


def test_stacks_for_exams_come_in_few_sizes() -> None:
    sizes = [round_up(num) for num in range(1, 257)]
    assert all(num <= size <= 1.25 * num for num, size in enumerate(sizes, start=1))
    assert len(set(sizes)) == 28
    assert sizes == sorted(sizes)
