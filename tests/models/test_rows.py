"""Rows of a matrix are what the models are one by one."""

from __future__ import annotations

import pytest
import torch

from sofa_fl.errors import ModelError
from sofa_fl.models import rows as rows_module
from sofa_fl.models.flat import Mix, Model, add_together, as_vector, distances, mean
from sofa_fl.models.gpu_sums import add_up, measure
from sofa_fl.models.rows import rows_of, sums_of

MODELS = tuple(torch.randn(50, generator=torch.Generator().manual_seed(i)) for i in range(5))
MIXED: list[Model] = [
    MODELS[0],
    Mix(MODELS[:3], (0.5, 1.0, 0.25)),
    Mix(MODELS[:1], (3.0,)),
    Mix((MODELS[4], MODELS[1]), (1.0, 3.0)),
]


@pytest.mark.parametrize("block", [1 << 27, 120, 1])
def test_mixes_and_models_become_rows(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK", block)
    expected = torch.stack([as_vector(model) for model in MIXED])
    torch.testing.assert_close(rows_of(MIXED, 50), expected)
    assert torch.equal(rows_of(MODELS, 50), torch.stack(MODELS))


def test_a_model_of_another_size_is_refused() -> None:
    with pytest.raises(ModelError, match="49 numbers does not fit a network of 50"):
        rows_of([MODELS[0], MODELS[1][:49]], 50)


def test_sums_are_of_the_first_numbers_and_nothing_is_zero() -> None:
    found = sums_of([[], [(MODELS[0], 2.0), (MODELS[1], -1.0)], [(MODELS[1], 0.5)]], 20)
    expected = [torch.zeros(20), (2 * MODELS[0] - MODELS[1])[:20], 0.5 * MODELS[1][:20]]
    torch.testing.assert_close(found, torch.stack(expected))


def test_a_row_is_not_spoiled_by_what_is_not_in_it() -> None:
    infinite = torch.full((50,), torch.inf)
    sums = [[(infinite, 1.0)], [(MODELS[0], 1.0)], [(MODELS[1], 1.0), (MODELS[2], 1.0)], []]
    found = sums_of(sums, 50)
    assert not torch.isfinite(found[0]).any()
    assert torch.isfinite(found[1:]).all()


def test_models_added_together_are_their_mean() -> None:
    many = [*MODELS] * 9  # more than are copied at once
    weights = [float(1 + i % 7) for i in range(len(many))]
    shares = [weight / sum(weights) for weight in weights]
    torch.testing.assert_close(add_together(many, shares, torch.zeros(50)), mean(many, weights))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_models_on_a_gpu_are_read_where_they_lie() -> None:
    there = [model.cuda() for model in MODELS]
    shorter = [model[:49] for model in there]
    weights = [1.0, 2.0, 0.5, 3.0, 1.5]
    torch.testing.assert_close(mean(there, weights).cpu(), mean(MODELS, weights))
    sums = [[], [(there[0], 2.0), (there[1], -1.0)], [(there[1], 0.5)]]
    expected = [torch.zeros(20), (2 * MODELS[0] - MODELS[1])[:20], 0.5 * MODELS[1][:20]]
    torch.testing.assert_close(sums_of(sums, 20).cpu(), torch.stack(expected))
    far = [(model - MODELS[0])[:49].norm() for model in MODELS]
    found = distances(shorter, [shorter[0]] * 5)
    torch.testing.assert_close(torch.stack(found).cpu(), torch.stack(far))


def test_kernels_are_for_vectors_of_one_gpu_that_are_long_enough() -> None:
    out = torch.empty(1, 50)
    assert not add_up([[(MODELS[0], 1.0)]], out)
    assert measure(MODELS, MODELS) is None
