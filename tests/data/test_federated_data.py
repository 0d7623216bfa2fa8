"""What federated data promise: stages in order, somebody who stays, one owner for every row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData, Stage
from sofa_fl.errors import DataError

ARRAYS = Arrays(np.zeros((40, 2), dtype=np.float32), np.arange(40) % 4)


def rows(first: int, num: int = 8) -> ClientData:
    """Rows from `first` on, the last two of them held out."""
    own = np.arange(first, first + num)
    return ClientData(own[:-2], own[-2:], own)


A, B, C = rows(0), rows(8), rows(16)
OTHER_A = rows(24)  # what the first client sees later
DATA = FederatedData(ARRAYS, ARRAYS, (A, B, C), 4, ((0, 0, 1),))


def staged(*stages: Stage) -> FederatedData:
    return replace(DATA, stages=stages)


def test_without_stages_everything_stays() -> None:
    for round in (0, 1, 99):
        stage = DATA.stage(round)
        assert stage.since == 0
        assert dict(stage.clients) == {0: A, 1: B, 2: C}
        assert stage.truth == DATA.truth


def test_a_stage_holds_until_the_next_one() -> None:
    first = Stage(0, {0: A, 1: B})
    second = Stage(3, {0: OTHER_A, 1: B, 2: C}, ((0, 1, 1),))
    third = Stage(4, {2: C})
    data = staged(first, second, third)
    found = [data.stage(round) for round in range(7)]
    assert found == [first, first, first, second, third, third, third]


def test_all_may_be_others() -> None:
    data = staged(Stage(0, {0: A, 1: B}), Stage(3, {2: C}))
    assert list(data.stage(3).clients) == [2]


def test_rows_may_come_back_to_who_had_them() -> None:
    data = staged(Stage(0, {0: A, 1: B}), Stage(1, {0: OTHER_A, 1: B}), Stage(2, {0: A, 1: B}))
    assert data.stage(2).clients[0] is A


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((Stage(1, {0: A}),), "the first stage must begin at round 0, got 1"),
        (
            (Stage(0, {0: A}), Stage(2, {0: A}), Stage(2, {0: A})),
            "stages must begin in increasing rounds, got rounds 2, 2",
        ),
        (
            (Stage(0, {0: A}), Stage(5, {0: A}), Stage(3, {0: A})),
            "stages must begin in increasing rounds, got rounds 5, 3",
        ),
        (
            (Stage(0, {0: A}), Stage(3, {})),
            "needs at least one client, but the stage of round 3 has none",
        ),
        ((Stage(0, {}),), "needs at least one client, but the stage of round 0 has none"),
        ((Stage(0, {0: A, 3: B}),), "there are 3 clients, but a stage names client 3"),
        ((Stage(0, {-1: A}),), "there are 3 clients, but a stage names client -1"),
        (
            (Stage(0, {0: A, 1: B}), Stage(1, {0: A, 1: replace(B, train=B.train[:0])})),
            r"clients \[1\] have no training sample",
        ),
        ((Stage(0, {0: A, 1: replace(B, train=A.train)}),), "belongs to more than one client"),
        ((Stage(0, {0: A, 1: replace(B, holdout=A.train)}),), "belongs to more than one client"),
        ((Stage(0, {0: replace(A, holdout=A.train)}),), "belongs to more than one client"),
        ((Stage(0, {0: A}), Stage(1, {0: A, 1: A})), "belongs to more than one client"),
        (
            (Stage(0, {0: A, 1: B}), Stage(1, {0: B, 1: A})),
            "belongs to more than one client",
        ),
        (
            (Stage(0, {0: A, 1: B}), Stage(4, {1: B}), Stage(6, {1: B, 2: rows(4)})),
            "belongs to more than one client",
        ),
    ],
)
def test_stages_that_make_no_sense(stages: tuple[Stage, ...], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        staged(*stages)
    assert "\n" not in str(error.value)


def test_without_stages_rows_have_one_owner_too() -> None:
    with pytest.raises(DataError, match="belongs to more than one client"):
        replace(DATA, clients=(A, B, rows(7)))
    with pytest.raises(DataError, match=r"clients \[2\] have no training sample"):
        replace(DATA, clients=(A, B, replace(C, train=C.train[:0])))


def test_inputs_and_targets_match() -> None:
    with pytest.raises(DataError, match="40 inputs do not match 39 targets"):
        Arrays(ARRAYS.x, ARRAYS.y[1:])


def test_a_short_repr() -> None:
    """Arrays of many numbers were printed whole."""
    pictures = Arrays(np.zeros((6, 3, 28, 28), np.uint8), np.zeros(6, np.int64))
    assert repr(pictures) == "Arrays(6 samples, uint8 inputs of shape (3, 28, 28), int64 targets)"
    assert repr(DATA).startswith("FederatedData(3 clients, train=Arrays(40 samples, float32")
    data = FederatedData(ARRAYS, ARRAYS, (A, B, C, OTHER_A), 4)
    named = replace(data, names=("rome", "milan", "turin", "pisa"))
    assert repr(named).startswith("FederatedData(4 clients (rome, milan, turin, …), train=")
    assert "1 client (rome)," in repr(replace(data, clients=(A,), names=("rome",)))
