"""A mix is its mean, computed when asked for."""

from __future__ import annotations

import torch

from sofa_fl.models.flat import Mix, as_vector, mean

MODELS = tuple(torch.randn(50, generator=torch.Generator().manual_seed(i)) for i in range(3))


def test_a_mix_is_the_mean_to_the_bit() -> None:
    weights = (0.5, 1.0, 0.25)
    assert torch.equal(as_vector(Mix(MODELS, weights)), mean(MODELS, weights))


def test_a_vector_and_a_mix_of_one_are_not_copied() -> None:
    assert as_vector(MODELS[0]) is MODELS[0]
    assert as_vector(Mix(MODELS[:1], (1.0,))) is MODELS[0]


def test_a_mix_has_the_size_of_one_model() -> None:
    assert Mix(MODELS, (1.0, 1.0, 1.0)).nbytes == MODELS[0].nbytes == 200
