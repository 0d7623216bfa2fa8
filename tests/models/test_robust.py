"""Robust means: as NumPy and SciPy have them, and a bad minority moves them nowhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sofa_fl.models import flat
from sofa_fl.models.flat import Aggregate, aggregate, mean

ROBUST: tuple[Aggregate, ...] = ("median", "trimmed")


def models(n: int, size: int = 7, seed: int = 0) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    return list(torch.from_numpy(rng.normal(size=(n, size)).astype(np.float32)))


@pytest.mark.parametrize("n", range(1, 10))
def test_the_median_is_numpys(n: int) -> None:
    some = models(n)
    found = aggregate(some, [1.0] * n, "median")
    expected = np.median(torch.stack(some).numpy(), axis=0)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    assert found.dtype == torch.float32


@pytest.mark.parametrize(("n", "trim"), [(4, 0.25), (8, 0.25), (10, 0.2), (10, 0.4), (20, 0.05)])
def test_the_trimmed_mean_is_scipys(n: int, trim: float) -> None:
    some = models(n)
    found = aggregate(some, [1.0] * n, "trimmed", trim)
    expected = stats.trim_mean(torch.stack(some).numpy(), trim, axis=0)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("n", "cut"), [(3, 1), (5, 2), (6, 2), (7, 2), (9, 3)])
def test_a_part_of_a_model_is_trimmed_whole(n: int, cut: int) -> None:
    some = models(n)
    expected = np.sort(torch.stack(some).numpy(), axis=0)[cut : n - cut].mean(axis=0)
    found = aggregate(some, [1.0] * n, "trimmed", 0.25)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_only_the_mean_goes_by_weights() -> None:
    some, weights = models(5), [1.0, 2.0, 3.0, 4.0, 50.0]
    assert torch.equal(aggregate(some, weights), mean(some, weights))
    for how in ROBUST:
        assert torch.equal(aggregate(some, weights, how), aggregate(some, [1.0] * 5, how))


@pytest.mark.parametrize("how", ROBUST)
def test_of_one_or_two_nothing_is_left_out(how: Aggregate) -> None:
    one, other = models(2)
    assert torch.equal(aggregate([one], [3.0], how), one)
    torch.testing.assert_close(aggregate([one, other], [9.0, 1.0], how), (one + other) / 2)


@pytest.mark.parametrize("how", ROBUST)
def test_of_three_the_middle_one_is_left(how: Aggregate) -> None:
    low, middle, high = (torch.full((4,), x) for x in (-5.0, 1.0, 1e9))
    assert torch.equal(aggregate([high, low, middle], [1.0] * 3, how), middle)


def test_no_trim_is_the_plain_mean() -> None:
    some = models(6)
    found = aggregate(some, [5.0, 1.0, 1.0, 1.0, 1.0, 1.0], "trimmed", 0.0)
    torch.testing.assert_close(found, torch.stack(some).mean(dim=0))


@pytest.mark.parametrize("how", ROBUST)
def test_blocks_make_no_difference(how: Aggregate, monkeypatch: pytest.MonkeyPatch) -> None:
    some = models(5, size=23)
    whole = aggregate(some, [1.0] * 5, how)
    for block in (1, 5, 20, 5 * 23):
        monkeypatch.setattr(flat, "BLOCK", block)
        assert torch.equal(aggregate(some, [1.0] * 5, how), whole)


def test_what_it_is_given_stays() -> None:
    some = models(5)
    before = [model.clone() for model in some]
    for how in ("mean", *ROBUST):
        aggregate(some, [1.0] * 5, how)
    assert all(torch.equal(model, old) for model, old in zip(some, before))


NUMBERS = st.floats(-1e3, 1e3, width=32)
BAD = st.one_of(st.floats(width=32), st.sampled_from([math.nan, math.inf, -math.inf, 3e38]))


@given(st.data(), st.integers(3, 9), st.sampled_from(ROBUST), st.sampled_from([0.1, 0.25, 0.45]))
def test_a_bad_minority_cannot_move_it_beyond_the_honest(
    data: st.DataObject, n: int, how: Aggregate, trim: float
) -> None:
    """As many as are left out at either end; whatever they send, not a number included."""
    most = (n - 1) // 2 if how == "median" else min(math.ceil(trim * n), (n - 1) // 2)
    num_bad = data.draw(st.integers(0, most))
    size = 2
    honest = data.draw(
        st.lists(
            st.lists(NUMBERS, min_size=size, max_size=size),
            min_size=n - num_bad,
            max_size=n - num_bad,
        )
    )
    bad = data.draw(
        st.lists(st.lists(BAD, min_size=size, max_size=size), min_size=num_bad, max_size=num_bad)
    )
    order = data.draw(st.permutations(range(n)))
    rows = [torch.tensor(row, dtype=torch.float32) for row in [*honest, *bad]]
    found = aggregate([rows[at] for at in order], [1.0] * n, how, trim)
    good = torch.tensor(honest, dtype=torch.float32)
    slack = 1e-5 * good.abs().amax(dim=0)  # a mean of equal numbers may be off by rounding
    assert bool((found >= good.amin(dim=0) - slack).all())
    assert bool((found <= good.amax(dim=0) + slack).all())
