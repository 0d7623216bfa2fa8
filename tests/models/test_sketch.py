"""A sketch keeps distances within the bound it states, and is the same to the bit every time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sofa_fl.models.sketch import Sketch
from torch import Tensor

from sofa_fl.errors import ModelError
from sofa_fl.models.networks import Mlp

SIZE, NUM_ENTRIES, NUM_DRAWS = 64, 3000, 400


def noise() -> Tensor:
    return torch.randn(NUM_ENTRIES, generator=torch.Generator().manual_seed(0))


def vectors() -> dict[str, Tensor]:
    """Entries that are alike, few that count, a block in one row, and steps of real training."""
    few = torch.zeros(NUM_ENTRIES)
    few[[3, 3 + SIZE, 1700]] = torch.tensor([5.0, -4.0, 3.0])
    block = torch.zeros(NUM_ENTRIES)
    block[100:160] = 1.0
    heavy = noise().sign() * noise().abs() ** 4
    return {"noise": noise(), "few": few, "block": block, "heavy": heavy, "trained": trained()}


def trained() -> Tensor:
    """How one step of a network moves it: layers of other scales, many entries of zero."""
    torch.manual_seed(0)
    network = Mlp((10, 10), 5, hidden=28, batch_norm=False)
    network(torch.rand(20, 10, 10) * (torch.rand(10, 10) < 0.5)).square().sum().backward()
    gradient = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    return torch.nn.functional.pad(gradient, (0, NUM_ENTRIES))[:NUM_ENTRIES]


@pytest.mark.parametrize("name", ["noise", "few", "block", "heavy", "trained"])
def test_squared_lengths_keep_the_stated_mean_and_variance(name: str) -> None:
    x = vectors()[name]
    sketches = [Sketch(SIZE, NUM_ENTRIES, seed) for seed in range(NUM_DRAWS)]
    ratios = np.array([float(s(x).square().sum() / x.double().square().sum()) for s in sketches])
    bound = 2 / SIZE
    assert ratios.mean() == pytest.approx(1, abs=4 * (bound / NUM_DRAWS) ** 0.5)
    assert ((ratios - 1) ** 2).mean() <= bound * 1.4, "but for the error of 400 draws"
    for share in (0.5, 1.0):
        assert (np.abs(ratios - 1) > share).mean() <= 2 / (SIZE * share**2)


def test_noise_is_as_far_off_as_the_bound_says() -> None:
    """The bound is no mere bound where many entries count alike."""
    x = noise()
    ratios = [
        float(Sketch(SIZE, NUM_ENTRIES, seed)(x).square().sum() / x.double().square().sum())
        for seed in range(NUM_DRAWS)
    ]
    assert np.std(ratios) == pytest.approx((2 / SIZE) ** 0.5, rel=0.15)


def test_entries_of_one_row_share_no_box() -> None:
    """So a few entries side by side keep their length exactly, whatever the seed."""
    x = torch.zeros(NUM_ENTRIES)
    x[SIZE : 2 * SIZE] = noise()[:SIZE]
    for seed in range(20):
        y = Sketch(SIZE, NUM_ENTRIES, seed)(x)
        assert torch.equal(y.abs().sort().values, x[SIZE : 2 * SIZE].double().abs().sort().values)


def test_any_two_entries_share_a_box_no_more_often_than_by_chance() -> None:
    size, num_entries, num_draws = 8, 100, 800
    pairs = [(0, 8), (5, 25), (70, 99), (16, 41), (96, 97)]
    units = torch.eye(num_entries)
    met = np.zeros(len(pairs))
    for seed in range(num_draws):
        sketch = Sketch(size, num_entries, seed)
        met += [bool((sketch(units[a]) * sketch(units[b])).any()) for a, b in pairs]
    assert met[:-1] / num_draws == pytest.approx(1 / size, abs=4 * (1 / size / num_draws) ** 0.5)
    assert met[-1] == 0, "of one row"


def test_is_linear() -> None:
    sketch = Sketch(SIZE, NUM_ENTRIES, 7)
    x, y = noise(), noise().flip(0)
    torch.testing.assert_close(sketch(x - y), sketch(x) - sketch(y), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_is_the_same_to_the_bit(num_threads: int) -> None:
    x, before = torch.cat([noise()] * 40), torch.get_num_threads()
    expected = Sketch(1000, len(x), 3)(x)
    try:
        torch.set_num_threads(num_threads)
        sketch = Sketch(1000, len(x), 3)
        sketch(x.flip(0))
        assert torch.equal(sketch(x), expected)
        assert not torch.equal(Sketch(1000, len(x), 4)(x), expected)
    finally:
        torch.set_num_threads(before)
    rows = torch.zeros(-(-len(x) // 1000) * 1000, dtype=torch.float64)
    rows[: len(x)] = (x * sketch._signs).double()
    table, turns = rows.view(-1, 1000), sketch._turns
    for turn in turns:  # by torch's own turning
        half = (len(table) + 1) // 2
        lower = torch.nn.functional.pad(table[half:], (0, 0, 0, 2 * half - len(table)))
        table = table[:half] + lower.roll(turn, dims=1)
    assert torch.equal(table[0], expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_bits_every_time() -> None:
    sketch, x = Sketch(SIZE, NUM_ENTRIES, 0), noise().cuda()
    first = sketch(x)
    assert all(torch.equal(sketch(x), first) for _ in range(20))
    assert torch.equal(first.cpu(), Sketch(SIZE, NUM_ENTRIES, 0)(x.cpu()))


@pytest.mark.parametrize("size", [NUM_ENTRIES, NUM_ENTRIES + 1, 1 << 20])
def test_what_is_small_enough_is_left_as_it_is(size: int) -> None:
    sketch = Sketch(size, NUM_ENTRIES, 0)
    assert torch.equal(sketch(noise()), noise().double())


@pytest.mark.parametrize("size", [1, 2, 7, 1499, 1500, 1501, 2999])
def test_any_size_will_do(size: int) -> None:
    y = Sketch(size, NUM_ENTRIES, 0)(noise())
    assert y.shape == (size,)
    assert y.dtype == torch.float64
    total = (noise() * Sketch(size, NUM_ENTRIES, 0)._signs).double().sum()
    assert float(y.sum()) == pytest.approx(float(total), abs=1e-9), "every entry is in one box"


def test_refuses_other_models_and_no_size() -> None:
    with pytest.raises(ModelError, match="does not fit"):
        Sketch(SIZE, NUM_ENTRIES, 0)(torch.zeros(5))
    with pytest.raises(ModelError, match="size of at least 1, got 0"):
        Sketch(0, NUM_ENTRIES, 0)
