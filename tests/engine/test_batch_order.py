"""Which sample comes when: full batches, shuffled passes, draws from the seed alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.engine.base import batch_order

sizes = st.integers(1, 60)
seeds = st.integers(0, 2**63 - 1)


@given(sizes, st.integers(1, 12), st.integers(1, 20), seeds)
def test_every_pass_sees_every_sample_once(n: int, batches: int, size: int, seed: int) -> None:
    order = batch_order(n, batches, size, seed)
    assert order.shape == (batches, size)
    flat = order.reshape(-1)
    for start in range(0, len(flat), n):
        one_pass = flat[start : start + n]
        assert len(np.unique(one_pass)) == len(one_pass)
        assert one_pass.min() >= 0
        assert one_pass.max() < n


@given(sizes, st.integers(1, 12), st.integers(1, 20), seeds)
def test_same_seed_same_order(n: int, batches: int, size: int, seed: int) -> None:
    first, again = (batch_order(n, batches, size, seed) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@given(sizes, st.integers(1, 6), st.integers(1, 6), st.integers(1, 20), seeds)
def test_more_batches_go_on_where_fewer_end(
    n: int, batches: int, more: int, size: int, seed: int
) -> None:
    short, long = (batch_order(n, b, size, seed) for b in (batches, batches + more))
    np.testing.assert_array_equal(long[:batches], short)


def test_shuffles_and_passes_differ() -> None:
    order = batch_order(100, 3, 100, 1)
    assert len({row.tobytes() for row in order}) == 3
    assert not np.array_equal(order[0], np.arange(100))
    assert not np.array_equal(order, batch_order(100, 3, 100, 2))


def test_leaves_the_global_generator_alone() -> None:
    before = str(np.random.get_state())  # noqa: NPY002
    batch_order(10, 2, 5, 0)
    assert str(np.random.get_state()) == before  # noqa: NPY002
