"""What a network keeps beside its model: seen, put back, and no part of the model."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
from torch import nn

from sofa_fl.models.flat_network import FlatNetwork, Kept


class Buffers(nn.Module):
    """Buffers of every kind, beside one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.tensor([1.0, 2.0]))
        self.register_buffer("scale", torch.ones(1, dtype=torch.float16))
        self.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
        self.register_buffer("table", torch.arange(3.0), persistent=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


def test_a_model_has_the_buffers_of_which_a_mean_can_be_taken() -> None:
    flat = FlatNetwork(Buffers())
    assert list(flat.places) == ["weight", "mean", "scale"]
    assert flat.vector.tolist() == [1, 1, 1, 2, 1]


def test_other_buffers_start_anew_with_every_load() -> None:
    flat = FlatNetwork(Buffers())
    network, vector = flat.network, flat.vector
    mask = network.get_buffer("mask")
    network.get_buffer("count").add_(5)
    network.mask, network.late = torch.zeros(2, 2), torch.ones(1)
    network.register_buffer("later", torch.ones(1))
    flat.load(vector * 2)
    assert network.get_buffer("mask") is mask
    assert not int(network.get_buffer("count"))
    assert not hasattr(network, "late")
    assert "later" not in dict(network.named_buffers())
    assert flat.vector.tolist() == [2, 2, 2, 4, 2]


def test_parameters_that_lie_in_one_memory_are_taken_apart() -> None:
    network = nn.ParameterList([torch.arange(6.0), torch.zeros(1).expand(3)])
    network.append(nn.Parameter(network[0].data[3:]))
    flat = FlatNetwork(network)
    flat.load(torch.arange(12.0))
    assert flat.vector.tolist() == list(range(12))


class Keeper(nn.Linear):
    """Keeps a little of everything."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.calls = 0
        self.state: torch.Tensor | None = None
        self.sums, self.seen = torch.zeros(2), [torch.ones(1)]
        self.last: deque[int] = deque([1, 2], maxlen=3)
        self.by_name = {"a": 1}
        self.alias = self.weight.data

    def use(self) -> None:
        """As a forward pass might."""
        self.calls += 1
        self.state = torch.ones(2) * self.calls
        self.sums += 1
        self.seen.append(torch.zeros(1))
        self.seen[0] += 1
        self.last.append(7)
        self.by_name["b"] = 2
        self.late = (1, torch.ones(1))


def attributes(network: nn.Module) -> dict[str, Any]:
    """Plain values of all that is kept."""
    names = ("calls", "state", "sums", "seen", "last", "by_name")
    return {name: repr(getattr(network, name)) for name in names} | {
        "late": hasattr(network, "late")
    }


@pytest.mark.parametrize("always", [True, False])
def test_all_that_was_changed_is_put_back(always: bool) -> None:
    network = Keeper()
    expected, kept = attributes(network), Kept(network)
    for _ in range(3):
        network.use()
        network.use()
        assert attributes(network) != expected
        kept.restore(always=always)
        assert attributes(network) == expected


def test_a_view_of_a_parameter_is_the_parameters() -> None:
    network = Keeper()
    kept = Kept(network)
    with torch.no_grad():
        network.weight.fill_(3)
    network.alias = torch.zeros(1)
    kept.restore(always=True)
    assert network.alias.tolist() == network.weight.tolist() == [[3, 3], [3, 3]]


def test_what_a_call_of_many_leaves_is_forgotten_but_for_numbers() -> None:
    network = Keeper()
    before, kept = attributes(network), Kept(network)
    network.use()
    kept.forget()
    after = attributes(network)
    assert {name for name in after if after[name] != before[name]} == {"calls", "sums"}
