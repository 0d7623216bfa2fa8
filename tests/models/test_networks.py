"""The networks by name, and that building one draws from its seed alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sofa_fl.errors import ModelError
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import Cnn, Mlp, build, network_factory

MNIST = (1, 28, 28)


def num_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_cnn_is_the_papers() -> None:
    network = network_factory(ModelConfig(), MNIST, 10)()
    assert num_parameters(network) == 1_475_146
    assert network(torch.zeros(2, *MNIST)).shape == (2, 10)
    widths = [m.out_features for m in network.modules() if isinstance(m, nn.Linear)]
    channels = [m.out_channels for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert (channels, widths) == ([32, 64], [600, 120, 10])


def test_pooling_before_relu_gives_what_pooling_after_does() -> None:
    cnn = build(lambda: Cnn(MNIST, 10, batch_norm=False), 0)
    layers = list(cnn.get_submodule("features").children())
    swapped = []
    while layers:
        layer = layers.pop(0)
        if isinstance(layer, nn.MaxPool2d):
            assert isinstance(layers[0], nn.ReLU)
            swapped.append(layers.pop(0))
        swapped.append(layer)
    x = torch.randn(3, *MNIST, generator=torch.Generator().manual_seed(1))
    after = cnn.get_submodule("out")(cnn.get_submodule("head")(nn.Sequential(*swapped)(x)))
    assert torch.equal(cnn(x), after)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 9, 17)])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_cnn_takes_images_of_other_sizes(shape: tuple[int, ...], batch_norm: bool) -> None:
    network = network_factory(ModelConfig(batch_norm=batch_norm), shape, 7)()
    assert network(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("shape", [(1, 7, 28), (1, 28, 7), (1, 1, 1)])
def test_cnn_refuses_images_too_small_for_it(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="at least 8 by 8"):
        network_factory(ModelConfig(), shape, 10)()


@pytest.mark.parametrize("shape", [(5,), (28, 28), (1, 1, 28, 28)])
def test_cnn_refuses_what_is_no_image(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="use the mlp"):
        network_factory(ModelConfig(name="cnn"), shape, 10)


@pytest.mark.parametrize("shape", [(5,), (3, 4), MNIST])
def test_mlp_takes_anything(shape: tuple[int, ...]) -> None:
    network = network_factory(ModelConfig(name="mlp", hidden=11), shape, 3)()
    size = torch.Size(shape).numel()
    assert num_parameters(network) == size * 11 + 11 + 11 * 3 + 3
    assert network(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize(("hidden", "sizes"), [((), [12, 3]), ((7, 5), [12, 7, 5, 3])])
def test_mlp_has_as_many_hidden_layers_as_widths(hidden: tuple[int, ...], sizes: list[int]) -> None:
    network = network_factory(ModelConfig(name="mlp", hidden=hidden), (3, 4), 3)()
    layers = [m for m in network.modules() if isinstance(m, nn.Linear)]
    assert [layers[0].in_features, *(layer.out_features for layer in layers)] == sizes
    assert network(torch.zeros(2, 3, 4)).shape == (2, 3)


def test_batch_norm_adds_its_layers() -> None:
    def norms(network: nn.Module) -> list[int]:
        kinds = nn.BatchNorm1d | nn.BatchNorm2d
        return [m.num_features for m in network.modules() if isinstance(m, kinds)]

    assert norms(Cnn(MNIST, 10, batch_norm=True)) == [32, 64]
    assert norms(Cnn(MNIST, 10, batch_norm=False)) == []
    assert norms(Mlp(MNIST, 10, hidden=9, batch_norm=True)) == [9]
    assert norms(Mlp(MNIST, 10, hidden=9, batch_norm=False)) == []


def weights(network: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def test_build_depends_on_its_seed_alone() -> None:
    factory = network_factory(ModelConfig(name="mlp"), (4,), 2)
    torch.manual_seed(1)
    first = weights(build(factory, 5))
    torch.manual_seed(2)
    assert torch.equal(weights(build(factory, 5)), first)
    assert not torch.equal(weights(build(factory, 6)), first)


def test_build_leaves_torchs_generator_alone() -> None:
    before = torch.random.get_rng_state()
    build(network_factory(ModelConfig(name="mlp"), (4,), 2), 5)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_build_refuses_what_is_no_network() -> None:
    with pytest.raises(ModelError, match=r"must be a torch\.nn\.Module, got int"):
        build(lambda: 3, 0)  # type: ignore[return-value, arg-type]
