from __future__ import annotations

import pytest

from study.rows.recovery import (
    is_within,
    level_before,
    mean_after,
    newcomers_of,
    rounds_to_level,
    rounds_to_truth,
    told,
    until,
)
from tests.study.drift_cases import drifting


def test_until_all_is_well_to_the_end() -> None:
    assert until([True, True]) == 1
    assert until([False, True, True]) == 2
    assert until([True, False, True]) == 3, "what does not last does not count"
    assert until([True, True, False]) is None


def test_levels_and_means_are_around_the_change() -> None:
    row = drifting("sofa", after=[0.6, 0.8, 0.89, 0.91])
    assert level_before(row) == 0.9
    assert mean_after(row) == pytest.approx(0.8)
    assert rounds_to_level(row, 0.9) == [3], "0.89 is within a point"
    assert rounds_to_level(row, 0.93) == [None]


def test_every_change_counts_by_itself() -> None:
    row = drifting("sofa", changes=[3, 5], ari=[1, 1, 1, 0.5, 1, 0.9, 0.94])
    assert rounds_to_truth(row) == [2, None]
    assert not is_within([2, None], 3)
    assert is_within([2, 3], 3)
    assert not is_within([2, 3], 2)


def test_rounds_in_words() -> None:
    assert told([[1], [1]]) == "1"
    assert told([[1], [3], [2]]) == "1 to 3"
    assert told([[None], [None]]) == "never"
    assert told([[2], [None]]) == "2, never in 1 of 2"
    assert told([[1, None], [2, None]]) == "1 to 2 / never"


def test_newcomers_against_old_ones() -> None:
    row = drifting("sofa", newcomers=[None] * 3 + [0.4] * 4, old=[0.8] * 7)
    assert newcomers_of(row) == pytest.approx([0.5] * 4)
