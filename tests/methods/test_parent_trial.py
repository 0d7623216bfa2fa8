"""The trial of a new parent: what those who went on learned, against what the parent did."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.parent_trial import Trial, counts, is_better_alone, trials_of
from sofa_fl.topology.tree import NodeId

ONE, OTHER, PARENT = map(NodeId, range(3))


def federation(one: int = 100, other: int = 100, blind_loss: float = 2.0) -> Federation:
    sizes = {ONE: one, OTHER: other}
    fed = SimpleNamespace(judged_on=lambda client: range(sizes[client]), blind_loss=blind_loss)
    return cast(Federation, fed)


def test_every_other_client_goes_on_from_its_own_model() -> None:
    losses = {NodeId(c): np.array([3.0 + c, 9.0, 1.0 + c]) for c in range(5)}
    found = trials_of([NodeId(0), NodeId(3), NodeId(4)], PARENT, losses)
    assert found == {
        0: Trial(PARENT, own_loss=1.0, parent_loss=3.0, goes_on=True),
        3: Trial(PARENT, own_loss=4.0, parent_loss=6.0, goes_on=False),
        4: Trial(PARENT, own_loss=5.0, parent_loss=7.0, goes_on=True),
    }


@pytest.mark.parametrize(
    ("own", "parents", "better"),
    [
        ((0.7, 9.0), (0.8, 0.8), True),  # alone 0.3 is learned, by the parent 0.2
        ((0.9, 9.0), (0.8, 0.8), False),  # 0.1 against 0.2
        ((0.8, 9.0), (0.8, 0.8), False),  # as much
        ((0.8, 0.0), (1.0, 0.5), False),  # 0.2 against 0.25: both tell about the parent
    ],
)
def test_who_learned_more(
    own: tuple[float, float], parents: tuple[float, float], better: bool
) -> None:
    tried = {
        ONE: Trial(PARENT, 1.0, 1.0, goes_on=True),
        OTHER: Trial(PARENT, 1.0, 1.0, goes_on=False),
    }
    losses = {client: np.array(row) for client, row in zip((ONE, OTHER), zip(parents, own))}
    assert is_better_alone(tried, losses, 0.0, federation()) is better
    nobody = {client: replace(trial, goes_on=False) for client, trial in tried.items()}
    assert is_better_alone(nobody, losses, 0.0, federation()) is False
    assert is_better_alone({}, {}, 0.0, federation()) is False


def test_samples_count() -> None:
    tried = dict.fromkeys((ONE, OTHER), Trial(PARENT, 1.0, 1.0, goes_on=True))
    losses = {ONE: np.array([0.9, 0.7]), OTHER: np.array([0.0, 1.0])}
    assert is_better_alone(tried, losses, 0.0, federation(90, 10)), "0.27 against 0.19"
    assert not is_better_alone(tried, losses, 0.0, federation(10, 90))
    assert counts([OTHER, ONE], federation(90, 10)).tolist() == [10, 90]


def test_it_must_be_more_than_chance_gives() -> None:
    """That is what is known, 2.0 - 0.5, divided by the root of 225 samples: 0.1."""
    tried = {
        ONE: Trial(PARENT, own_loss=1.0, parent_loss=1.0, goes_on=True),
        OTHER: Trial(PARENT, own_loss=1.0, parent_loss=1.0, goes_on=False),
    }
    more, less = (
        {ONE: np.array([parents, 0.5]), OTHER: np.array([parents, 9.0])} for parents in (0.61, 0.59)
    )
    fed = federation(225, 10_000)
    assert is_better_alone(tried, more, 1.0, fed), "0.5 against 0.39"
    assert not is_better_alone(tried, less, 1.0, fed), "0.5 against 0.41"
    assert is_better_alone(tried, less, 0.8, fed)
    assert not is_better_alone(tried, more, 1.0, federation(150, 10_000))
