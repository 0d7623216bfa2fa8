from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sofa_fl.data.dealing import deal, split
from sofa_fl.data.federated_data import Arrays
from sofa_fl.data.own import from_arrays
from sofa_fl.errors import DataError

ROWS = 60
X = np.arange(ROWS, dtype=np.float32)[:, None]
CITIES = np.array(["Rome", "Oslo", "Lima"])[np.arange(ROWS) % 3]
ARRAYS = from_arrays(X, np.arange(ROWS) % 4)


def test_every_client_has_its_own_rows() -> None:
    data = deal(ARRAYS, CITIES, test=0.25, holdout=0.2)
    for client, city in zip(data.clients, ["Lima", "Oslo", "Rome"]):  # sorted
        seen = [data.train.x[client.train], data.train.x[client.holdout], data.test.x[client.test]]
        assert [len(rows) for rows in seen] == [12, 3, 5]
        assert sorted(np.concatenate(seen)[:, 0]) == np.flatnonzero(city == CITIES).tolist()
    assert data.num_outputs == 4
    assert len(data.train) + len(data.test) == ROWS


def test_a_function_says_whose_they_are() -> None:
    def halves(arrays: Arrays) -> Any:
        return arrays.x[:, 0] >= 30

    data = deal(ARRAYS, halves)
    assert len(data.clients) == 2
    assert data.train.x[data.clients[0].train].max() < 30
    again = deal(ARRAYS, halves)
    np.testing.assert_array_equal(again.test.x, data.test.x)
    assert not np.array_equal(deal(ARRAYS, halves, seed=1).test.x, data.test.x)


def test_standardized_by_what_is_trained_on() -> None:
    x = np.concatenate([5 + 3 * X, np.ones((ROWS, 1))], axis=1)
    data = deal(from_arrays(x, X[:, 0]), CITIES, standardize=True)
    assert data.train.x[:, 0].mean() == pytest.approx(0, abs=1e-5)
    assert data.train.x[:, 0].std() == pytest.approx(1, abs=1e-5)
    assert not data.train.x[:, 1].any(), "what never varies says nothing"
    assert data.num_outputs == 1


def test_split() -> None:
    train, test = split(ARRAYS, test=0.25)
    assert (len(train), len(test)) == (45, 15)
    assert sorted(np.concatenate([train.x, test.x])[:, 0]) == list(range(ROWS))


@pytest.mark.parametrize(
    ("by", "options", "words"),
    [
        (CITIES[:5], {}, r"one owner for each of the 60 samples, got shape \(5,\)"),
        (CITIES, {"test": 1.0}, "below 1, got 1.0"),
        (CITIES, {"test": 0.0}, "no client has a sample for scoring"),
        (np.arange(ROWS) % 30, {"test": 0.9}, "client 0 has no sample left"),
    ],
)
def test_refused(by: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        deal(ARRAYS, by, **options)


def test_too_few_to_split() -> None:
    with pytest.raises(DataError, match="too few"):
        split(from_arrays(X[:1], [0]))
