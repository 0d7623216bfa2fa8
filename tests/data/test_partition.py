"""Partitions: every row has one owner, minima are kept, the test set follows the training set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Samples
from sofa_fl.data.partition import Parts, dirichlet, iid, shards
from sofa_fl.errors import DataError

Labels = NDArray[Any]
Deal = Callable[[Labels, Labels, int, int, int], Parts]


def labels(num_samples: int, num_classes: int, seed: int = 0) -> Labels:
    return np.random.default_rng([seed, num_samples]).integers(0, num_classes, num_samples)


def dirichlet_at(alpha: float) -> Deal:
    return lambda train, test, num_clients, min_samples, seed: dirichlet(
        train, test, num_clients=num_clients, alpha=alpha, min_samples=min_samples, seed=seed
    )


DEALS: dict[str, Deal] = {
    "iid": lambda train, test, num_clients, min_samples, seed: iid(
        len(train), len(test), num_clients=num_clients, min_samples=min_samples, seed=seed
    ),
    "dirichlet 1e-3": dirichlet_at(1e-3),
    "dirichlet 1": dirichlet_at(1.0),
    "dirichlet 1e308": dirichlet_at(1e308),
    "shards": lambda train, test, num_clients, min_samples, seed: shards(
        train,
        test,
        num_clients=num_clients,
        shards_per_client=min(2, len(train) // max(num_clients, 1)),
        min_samples=min_samples,
        seed=seed,
    ),
}


def table(rows: list[Samples], y: Labels, num_classes: int) -> NDArray[np.int64]:
    """Samples per client and class."""
    return np.array([np.bincount(y[own], minlength=num_classes) for own in rows])


@pytest.mark.parametrize("deal", DEALS.values(), ids=DEALS)
@given(
    num_clients=st.integers(1, 12),
    min_samples=st.integers(0, 5),
    spare=st.integers(0, 80),
    num_test=st.integers(1, 40),
    num_classes=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=50)
def test_invariants(
    deal: Deal,
    num_clients: int,
    min_samples: int,
    spare: int,
    num_test: int,
    num_classes: int,
    seed: int,
) -> None:
    train = labels(num_clients * max(min_samples, 1) + spare, num_classes)
    test = labels(num_test, num_classes, seed=1)
    parts = deal(train, test, num_clients, min_samples, seed)
    again = deal(train, test, num_clients, min_samples, seed)
    for rows, other, y in ((parts.train, again.train, train), (parts.test, again.test, test)):
        assert len(rows) == num_clients
        assert all(own.dtype == np.int64 for own in rows)
        np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(len(y)))
        for mine, same in zip(rows, other):
            np.testing.assert_array_equal(mine, same)
    assert min(map(len, parts.train)) >= max(min_samples, 1)
    # Each has a test row where there are enough; otherwise no client has two.
    sizes = np.array([len(own) for own in parts.test])
    assert (sizes > 0).sum() == min(num_clients, num_test)


@pytest.mark.parametrize("deal", DEALS.values(), ids=DEALS)
def test_seeds_differ_and_the_test_set_leaves_the_training_set_alone(deal: Deal) -> None:
    train, test = labels(500, 5), labels(100, 5)
    first, second = deal(train, test, 5, 1, 0), deal(train, test, 5, 1, 1)
    assert any(not np.array_equal(a, b) for a, b in zip(first.train, second.train))
    smaller = deal(train, test[:50], 5, 1, 0)
    for mine, same in zip(first.train, smaller.train):
        np.testing.assert_array_equal(mine, same)


def test_dirichlet_splits_the_test_set_by_the_same_shares() -> None:
    train, test = np.repeat(np.arange(10), 600), np.repeat(np.arange(10), 100)
    parts = dirichlet(train, test, num_clients=20, alpha=0.5, seed=3)
    counts, test_counts = table(parts.train, train, 10), table(parts.test, test, 10)
    # Exact to the rounding of one row.
    assert np.abs(test_counts - counts / 6).max() < 1


def test_alpha_sets_how_much_clients_differ() -> None:
    train = np.repeat(np.arange(10), 600)

    def spread(alpha: float) -> float:
        parts = dirichlet(train, train, num_clients=10, alpha=alpha, seed=0)
        return float(table(parts.train, train, 10).std())

    assert spread(1e4) < 5 < spread(1.0) < spread(0.01)
    # Dirichlet(1) over 10 clients: a share has standard deviation sqrt(0.09 / 11).
    assert spread(1.0) == pytest.approx(600 * (0.09 / 11) ** 0.5, rel=0.25)


def test_minimum_is_taken_from_the_largest() -> None:
    train = np.repeat(np.arange(10), 100)
    drawn = dirichlet(train, train, num_clients=20, alpha=0.05, seed=1)
    raised = dirichlet(train, train, num_clients=20, alpha=0.05, min_samples=25, seed=1)
    before = np.array([len(rows) for rows in drawn.train])
    after = np.array([len(rows) for rows in raised.train])
    assert before.min() < 25 <= after.min()
    np.testing.assert_array_equal(after[before < 25], 25)
    given_up = before[(before >= 25) & (after < before)]
    kept = before[(before >= 25) & (after == before)]
    assert given_up.min() >= kept.max()


def test_minimum_that_takes_every_sample() -> None:
    train = labels(600, 10)
    parts = dirichlet(train, train, num_clients=60, alpha=1.0, min_samples=10, seed=0)
    assert {len(rows) for rows in parts.train} == {10}


def test_test_rows_are_of_classes_that_the_client_trains_on() -> None:
    train, test = np.repeat(np.arange(10), 300), np.repeat(np.arange(10), 20)
    deals = (
        dirichlet(train, test, num_clients=100, alpha=0.01, min_samples=10, seed=0),
        shards(train, test, num_clients=100, shards_per_client=2, seed=0),
    )
    for parts in deals:
        counts, test_counts = table(parts.train, train, 10), table(parts.test, test, 10)
        assert test_counts.sum(axis=1).min() >= 1
        assert not test_counts[counts == 0].any()


def test_a_thousand_clients_at_a_very_small_alpha() -> None:
    train, test = labels(60_000, 10), labels(10_000, 10)
    parts = dirichlet(train, test, num_clients=1000, alpha=1e-3, min_samples=10, seed=0)
    assert min(map(len, parts.train)) == 10
    assert min(map(len, parts.test)) >= 1
    assert max(map(len, parts.train)) > 1000


def test_shards_hold_few_classes_and_equal_sizes() -> None:
    train = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
    parts = shards(train, train, num_clients=50, shards_per_client=2, seed=0)
    counts = table(parts.train, train, 10)
    assert set(counts.sum(axis=1)) == {120}
    # A shard of 60 never crosses the border of a class of 600.
    assert (counts > 0).sum(axis=1).max() == 2


def test_a_class_that_nobody_trains_on_is_dealt_out_evenly() -> None:
    train, test = np.zeros(40, dtype=np.int64), np.array([0] * 40 + [7] * 40)
    parts = dirichlet(train, test, num_clients=4, alpha=1.0, seed=0)
    assert [int((test[rows] == 7).sum()) for rows in parts.test] == [10] * 4


@pytest.mark.parametrize("deal", DEALS.values(), ids=DEALS)
def test_sizes_that_cannot_be(deal: Deal) -> None:
    y = labels(30, 3)
    with pytest.raises(DataError, match="at least 1, got 0"):
        deal(y, y, 0, 1, 0)
    with pytest.raises(DataError, match=r"31 clients .* there are 30;"):
        deal(y, y, 31, 1, 0)
    with pytest.raises(DataError, match=r"4 clients with at least 8 .*need 32, but there are 30;"):
        deal(y, y, 4, 8, 0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_above_zero(alpha: float) -> None:
    with pytest.raises(DataError, match=f"above 0, got {alpha}"):
        dirichlet(labels(9, 3), labels(9, 3), num_clients=2, alpha=alpha, seed=0)


@pytest.mark.parametrize("shards_per_client", [0, 11])
def test_number_of_shards(shards_per_client: int) -> None:
    y = labels(20, 2)
    with pytest.raises(DataError, match=f"with {shards_per_client} shards each .* 20 training"):
        shards(y, y, num_clients=2, shards_per_client=shards_per_client, seed=0)


@pytest.mark.parametrize("name", ["dirichlet 1", "shards"])
def test_label_partitions_refuse_floats(name: str) -> None:
    y = np.linspace(0, 1, 20)
    with pytest.raises(DataError, match=r"float64 .* use data.partition=iid"):
        DEALS[name](y, y, 2, 1, 0)
