"""Where a network's tensors are made: `meta` stands for a GPU, on which the CPU's are no good."""

from __future__ import annotations

import pytest
import torch

from sofa_fl.errors import ModelError
from sofa_fl.models.networks import Home

META = torch.device("meta")
THERE = torch.ones(2, 3, device=META)


def added() -> torch.device:
    """As a network would: it fails unless its tensor is made where its weights are."""
    try:
        return (THERE + torch.zeros(2, 3)).device
    except RuntimeError as error:
        raise ModelError("the network failed") from error


def test_tensors_are_made_on_the_cpu_while_that_works() -> None:
    home = Home(META)
    assert home.trying(lambda: torch.zeros(1).device.type) == "cpu"
    assert not home.is_default


def test_tensors_are_made_with_the_weights_if_it_fails_otherwise() -> None:
    home = Home(META)
    assert home.trying(added) == META
    with home():
        assert torch.zeros(1).device == META
        assert torch.zeros(1, device="cpu").device.type == "cpu", "where a network says so"
    assert torch.zeros(1).device.type == "cpu"


def test_who_fails_either_way_fails_as_at_first() -> None:
    errors = [ModelError("first"), ModelError("second")]
    home = Home(META)

    def fail() -> None:
        raise errors.pop(0)

    with pytest.raises(ModelError, match="first"):
        home.trying(fail)
    assert not errors
    assert not home.is_default
    at_home = Home(torch.device("cpu"))
    errors += [ModelError("only once")] * 2
    with pytest.raises(ModelError, match="only once"):
        at_home.trying(fail)
    assert len(errors) == 1
