"""Draws by a hash: even, apart from each other, and the same alone and in a stack."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from sofa_fl.engine.drawing import DRAWING
from sofa_fl.engine.draws import Draws, Rewriting
from sofa_fl.errors import EngineError

SEED = torch.tensor(12345)


def test_draws_are_even_and_depend_on_everything() -> None:
    first = Draws.at(SEED, 0)
    draws = [first.uniform((1000, 100)), first.uniform((1000, 100))]
    draws += [Draws.at(SEED, 1).uniform((1000, 100)), Draws.at(SEED + 1, 0).uniform((1000, 100))]
    for x in draws:
        assert float(x.min()) >= 0
        assert float(x.max()) < 1
        counts = torch.histc(x, 100, 0, 1)
        assert 60 < float(((counts - 1000) ** 2 / 1000).sum()) < 160, "chi-squared, 99 degrees"
        shifted = torch.stack([x.flatten()[:-1], x.flatten()[1:]])
        assert abs(float(torch.corrcoef(shifted)[0, 1])) < 0.012
    correlations = torch.corrcoef(torch.stack([x.flatten() for x in draws]))
    assert float((correlations - torch.eye(4)).abs().max()) < 0.012
    assert torch.equal(Draws.at(SEED, 0).uniform((1000, 100)), draws[0])


def test_normal_draws_are_normal() -> None:
    x = Draws.at(SEED, 0).normal((100_000,))
    moments = [float((x**k).mean()) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.08)


def test_a_client_draws_the_same_alone_mapped_and_side_by_side() -> None:
    seeds = torch.tensor([5, 2**62 + 1, 9])
    alone = torch.stack([Draws.at(seed, 3).uniform((4, 6)) for seed in seeds])
    mapped = torch.func.vmap(lambda seed: Draws.at(seed, 3).uniform((4, 6)))(seeds)
    beside = Draws.at(seeds, torch.tensor(3)).uniform((12, 6)).view(3, 4, 6)
    assert torch.equal(alone, mapped)
    assert torch.equal(alone, beside)


def test_draws_that_are_not_per_sample_cannot_lie_side_by_side() -> None:
    with pytest.raises(EngineError, match=r"shape \(4, 6\) are not draws per sample"):
        Draws.at(torch.arange(3), 0).uniform((4, 6))


def test_without_a_key_nothing_draws() -> None:
    with pytest.raises(EngineError, match="has no seed"), Rewriting(DRAWING, Draws(None)):
        functional.dropout(torch.ones(3))
    with Rewriting(DRAWING, Draws(None)):
        assert functional.dropout(torch.ones(3), training=False).sum() == 3


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.3), nn.Dropout(0.3, inplace=True), nn.Dropout1d(0.3), nn.Dropout2d(0.3),
     nn.Dropout3d(0.3), nn.AlphaDropout(0.3), nn.Dropout(1.0), nn.Dropout(0.0)],
    ids=str,
)  # fmt: skip
def test_dropout_is_torchs_but_for_the_draws(layer: nn.modules.dropout._DropoutNd) -> None:
    num = 1 if isinstance(layer, nn.Dropout1d) else 2 if isinstance(layer, nn.Dropout2d) else 3
    x = torch.randn(400, 50, *[2] * num, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    theirs = layer(x.clone())
    with Rewriting(DRAWING, Draws.at(SEED, 0)):
        ours = layer(x.clone())
    assert not torch.equal(ours, theirs) or layer.p in (0.0, 1.0)
    # What is kept is scaled alike, as often, and whole channels are dropped where theirs are.
    np.testing.assert_allclose(ours.std(), theirs.std(), rtol=0.02)
    np.testing.assert_allclose(ours.mean(), theirs.mean(), atol=0.02)
    zeros = [(y == 0).flatten(2).float().mean(dim=2) for y in (ours, theirs)]
    np.testing.assert_allclose(zeros[0].mean(), zeros[1].mean(), atol=0.02)
    np.testing.assert_allclose(zeros[0].std(), zeros[1].std(), atol=0.02)
    if 0 < layer.p < 1:
        both = (ours != 0) & (theirs != 0) & (ours.sub(theirs).abs() < 1e-5)
        assert 0.4 < float(both.float().mean()) < 0.6, "0.49 is kept by both"


def test_other_draws_are_ours_too() -> None:
    with Rewriting(DRAWING, Draws.at(SEED, 0)):
        drawn = [torch.rand(2, 3), torch.rand((2, 3)), torch.randn(2, 3), torch.rand(size=(2, 3))]
        drawn += [torch.rand_like(drawn[0]), torch.randn_like(drawn[0])]
        half = torch.bernoulli(torch.full((1000,), 0.5))
        theirs = torch.rand(3, generator=torch.Generator().manual_seed(0))
    assert {tuple(x.shape) for x in drawn} == {(2, 3)}
    assert len({float(x.sum()) for x in drawn}) == len(drawn)
    assert 400 < float(half.sum()) < 600
    assert torch.equal(theirs, torch.rand(3, generator=torch.Generator().manual_seed(0)))
