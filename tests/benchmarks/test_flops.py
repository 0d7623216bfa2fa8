"""The operations counted by hand are those that torch counts, for everybody's network."""

from __future__ import annotations

import pytest
import torch
from engines import FLOPS_PER_SAMPLE, FORWARD, PlainNetwork
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torch_tutorial import Net

from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import network_factory

NETWORKS = {
    "plain": PlainNetwork,
    "tutorial": Net,
    "sofa-fl": network_factory(ModelConfig(), (1, 28, 28), 10),
}
SAMPLES = 3


@pytest.mark.parametrize("name", NETWORKS)
def test_counts_of_forward_and_training_match_torchs(name: str) -> None:
    network: nn.Module = NETWORKS[name]()
    x, y = torch.rand(SAMPLES, 1, 28, 28), torch.arange(SAMPLES)
    with FlopCounterMode(display=False) as forward:
        out = network(x)
    with FlopCounterMode(display=False) as backward:
        nn.functional.cross_entropy(out, y).backward()  # type: ignore[no-untyped-call]
    assert forward.get_total_flops() == SAMPLES * FORWARD
    training = forward.get_total_flops() + backward.get_total_flops()
    assert training == SAMPLES * FLOPS_PER_SAMPLE


@pytest.mark.parametrize("name", NETWORKS)
def test_all_train_the_papers_network(name: str) -> None:
    assert sum(weights.numel() for weights in NETWORKS[name]().parameters()) == 1_475_146
