"""A network that does not fit the data is refused before anything is trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.engine.learner import Store
from sofa_fl.engine.select import make_engine, pick_engine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.workers import WorkersEngine
from sofa_fl.errors import ModelError
from sofa_fl.models.networks import NetworkFactory
from tests.engine.cases import DATA, LOCAL, MLP


def flat_to(num_outputs: int) -> NetworkFactory:
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, num_outputs))


def refused(factory: NetworkFactory, data: FederatedData = DATA) -> str:
    with pytest.raises(ModelError) as caught:
        SequentialEngine(factory, data, LOCAL)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_too_few_outputs_for_the_labels() -> None:
    sentence = "the network has 3 outputs, but the labels go up to 3; it needs at least 4"
    assert refused(flat_to(3)) == sentence
    SequentialEngine(flat_to(4), DATA, LOCAL)
    SequentialEngine(flat_to(9), DATA, LOCAL)


def test_a_label_that_only_the_test_set_has() -> None:
    test = replace(DATA.test, y=np.where(DATA.test.y == 0, 6, DATA.test.y))
    assert "labels go up to 6" in refused(flat_to(4), replace(DATA, test=test))


def test_a_network_that_cannot_take_the_input() -> None:
    for factory in (lambda: nn.Linear(5, 4), lambda: nn.Conv2d(3, 4, 3)):
        assert "the network cannot take float32 inputs of shape (1, 8, 8): " in refused(factory)


def test_a_network_that_looks_for_more_channels() -> None:
    class Greedy(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input[:, 2].flatten(1))

    said = refused(lambda: Greedy(64, 4))
    assert "cannot take float32 inputs of shape (1, 8, 8): IndexError: index 2" in said
    assert "test_learner.py, line" in said


@pytest.mark.parametrize("output", [0, 1, 2], ids=["flat", "a pair", "two rows too many"])
def test_outputs_that_are_not_rows(output: int) -> None:
    class Odd(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            rows = super().forward(input.flatten(1))
            odd: list[Any] = [rows.flatten(), (rows, rows), torch.cat([rows, rows])]
            return odd[output]  # type: ignore[no-any-return]

    given = ["a tensor of shape (8,)", "a tuple; return one of its tensors"]
    said = refused(lambda: Odd(64, 4))
    assert said.startswith("the network must return one row of outputs per sample")
    assert said.endswith(f"it returned {[*given, 'a tensor of shape (4, 4)'][output]}")


def test_outputs_that_do_not_fit_float_targets() -> None:
    x, y = DATA.train.x, np.zeros((211, 3), dtype=np.float32)
    data = FederatedData(Arrays(x, y), Arrays(x, y), DATA.clients, 3)
    assert refused(flat_to(2), data) == "2 outputs do not fit 3 target values"
    SequentialEngine(flat_to(3), data, LOCAL)


def test_workers_refuse_the_same() -> None:
    with pytest.raises(ModelError, match="labels go up to 3"):
        WorkersEngine(flat_to(3), DATA, LOCAL, 1)


def test_latent_places_need_a_linear_layer() -> None:
    def factory() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 8), nn.Flatten())

    engine = SequentialEngine(factory, DATA, LOCAL)
    with pytest.raises(ModelError, match="need a network with a linear layer"):
        engine.embed([engine.initial(0)], np.arange(3))


def test_a_store_scales_when_it_reads() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    x.setflags(write=False)  # as arrays from a file are
    store = Store(Arrays(x, np.arange(3), scale=0.5, shift=-1.0))
    batch, y = store.batch(torch.tensor([2, 0]))
    assert batch.dtype == torch.float32
    np.testing.assert_array_equal(batch, x[[2, 0]] * 0.5 - 1)
    np.testing.assert_array_equal(y, [2, 0])
    np.testing.assert_array_equal(store.batch(torch.tensor([1]))[0], x[[1]] * 0.5 - 1)
    np.testing.assert_array_equal(x, np.arange(12).reshape(3, 4))


def test_engines_by_name() -> None:
    assert isinstance(make_engine("sequential", MLP, DATA, LOCAL), SequentialEngine)
    engine = make_engine("workers", MLP, DATA, LOCAL)
    assert isinstance(engine, WorkersEngine)
    assert 1 <= len(engine.pids) <= len(DATA.clients)
    engine.close()


def test_auto_takes_no_workers_for_one_client() -> None:
    alone = replace(DATA, clients=DATA.clients[:1])
    assert isinstance(pick_engine("auto", MLP, alone, LOCAL).engine, SequentialEngine)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_come_channels_last_however_they_lay(channels: int) -> None:
    """A convolution goes by the strides, and takes twice as long over the wrong ones."""
    x = np.arange(4 * channels * 25, dtype=np.uint8).reshape(4, channels, 5, 5)
    strided = np.lib.stride_tricks.as_strided(x, strides=(25, 0, 5, 1)) if channels == 1 else x
    for images in (x, strided, np.asfortranarray(x)):
        batch, _ = Store(Arrays(images, np.zeros(4, dtype=np.int64))).batch(torch.tensor([2, 0]))
        assert batch.stride() == (25 * channels, 1, 5 * channels, channels)
        assert torch.equal(batch, torch.from_numpy(x[[2, 0]].astype(np.float32)))
