"""What is frozen lies in memory once, is no part of a model, and trains stacked as alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sofa_fl.engine.base import Exam, LocalConfig
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stack import LayerStack, MappedStack
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import Mlp, NetworkFactory
from tests.engine.zoo import TINY, ZOO, distance, zoo_data, zoo_tasks

LOCAL = LocalConfig(batches=3, batch_size=6, optimizer="sgd", learning_rate=0.01)
TOLERANCE = 2e-3  # of how far a model has moved


def frozen(factory: NetworkFactory, which: str) -> NetworkFactory:
    """The network with the first half of its parameters frozen, or all that are no bias."""

    def make() -> nn.Module:
        network = factory()
        names = [name for name, _ in network.named_parameters()]
        for name in names[: len(names) // 2] if which == "half" else names:
            parameter = network.get_parameter(name)
            parameter.requires_grad_(which == "biases" and parameter.ndim == 1)
        return network

    return make


@pytest.mark.parametrize("which", ["half", "biases"])
@pytest.mark.parametrize("name", ZOO)
def test_a_frozen_part_trains_stacked_as_alone(name: str, which: str) -> None:
    animal = ZOO[name]
    factory = frozen(animal.factory(TINY), which)
    data = zoo_data(animal, TINY, num_clients=3, each=12)
    plain = SequentialEngine(factory, data, LOCAL)
    stacked = StackedEngine(factory, data, LOCAL, "cpu")
    assert "one by one" not in stacked.way
    tasks = zoo_tasks(plain, data, LOCAL.batches)
    expected, found = plain.train(tasks), stacked.train(tasks)
    assert (
        len(found[0].params)
        == len(plain.initial(0))
        < sum(parameter.numel() for parameter in factory().parameters())
    )
    assert distance(found, expected, tasks) <= TOLERANCE
    exams = [Exam(o.params, c.train) for o, c in zip(expected, data.clients)]
    for score, other in zip(stacked.evaluate(exams), plain.evaluate(exams), strict=True):
        assert score.loss == pytest.approx(other.loss, rel=1e-4)


def half_frozen() -> nn.Module:
    return frozen(lambda: Mlp((3, 4), 5, hidden=(6, 7), batch_norm=True), "half")()


@pytest.mark.parametrize("make", [LayerStack, MappedStack])
def test_stacks_share_what_is_frozen(make: type[LayerStack] | type[MappedStack]) -> None:
    flat = FlatNetwork(half_frozen())
    places = {parameter.data_ptr() for parameter in flat.frozen.values()}
    for num in (2, 3):
        stack = make(flat, num)
        held = [p for p in stack.network.parameters() if not p.requires_grad]
        assert {parameter.data_ptr() for parameter in held} == places
        assert all(p.untyped_storage().nbytes() == p[0].nbytes or p.ndim < 3 for p in held)


def test_networks_of_one_process_share_what_is_frozen() -> None:
    torch.manual_seed(0)
    first = FlatNetwork(half_frozen())
    torch.manual_seed(0)
    second, third = FlatNetwork(half_frozen()), FlatNetwork(half_frozen())
    assert first.frozen_digest == second.frozen_digest != third.frozen_digest
    for name, parameter in first.frozen.items():
        assert second.frozen[name].data_ptr() == parameter.data_ptr()
        is_equal = torch.equal(third.frozen[name], parameter)  # as the ones of a norm are
        assert (third.frozen[name].data_ptr() == parameter.data_ptr()) == is_equal
    for name, place in first.places.items():
        assert second.places[name] == place
        assert second.tensors[name].data_ptr() != first.tensors[name].data_ptr()
    expected = {name: parameter.clone() for name, parameter in first.frozen.items()}
    del first
    torch.manual_seed(0)
    again = FlatNetwork(half_frozen())
    for name, parameter in second.frozen.items():
        assert again.frozen[name].data_ptr() == parameter.data_ptr()
        assert torch.equal(parameter, expected[name])


def test_nothing_frozen_has_no_digest() -> None:
    assert FlatNetwork(Mlp((3, 4), 5, hidden=6, batch_norm=True)).frozen_digest == ""
