"""The frozen part of a network is written once, and is what a resumed run and an export use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import sofa_fl
from sofa_fl.errors import ModelError, RunError
from sofa_fl.experiment.storage.frozen_file import with_frozen_of, write_frozen
from sofa_fl.models.flat import as_vector
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.frozen import frozen_of
from sofa_fl.models.networks import NetworkFactory, build

LOCAL = sofa_fl.LocalConfig(batches=2, batch_size=8)
CONFIG = sofa_fl.Config(rounds=2, engine="sequential", local=LOCAL)


def network(scale: float = 1.0, width: int = 50, dtype: torch.dtype = torch.float32) -> Any:
    """A function that makes a large frozen layer, and a small one above it."""

    def make() -> nn.Module:
        torch.manual_seed(1)
        first, second = nn.Linear(width, 40), nn.Linear(40, 3)
        first.weight.data.mul_(scale)
        first.requires_grad_(False).weight.data = first.weight.to(dtype).float()
        return nn.Sequential(first, nn.LayerNorm(40).requires_grad_(False), nn.ReLU(), second)

    return make


@pytest.fixture
def data() -> sofa_fl.FederatedData:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 50)), rng.integers(0, 3, 120)
    return sofa_fl.deal(sofa_fl.from_arrays(x, y), by=np.arange(120) % 4)


def files(run: Path) -> list[Path]:
    return sorted(run.glob("frozen-*.safetensors"))


def test_a_run_writes_it_once_and_checkpoints_do_not(
    tmp_path: Path, data: sofa_fl.FederatedData
) -> None:
    config = replace(CONFIG, out=str(tmp_path / "run"))
    result = sofa_fl.run(config, data=data, network=network())
    (file,) = files(result.run)
    assert load_file(file).keys() == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert file.stem == f"frozen-{FlatNetwork(build(network(), 0)).frozen_digest}"
    assert {len(as_vector(model)) for model in result.view.models.values()} == {40 * 3 + 3}
    assert result.summary["bytes_up"] < 4 * (40 * 3 + 3) * 4 * 3 * 2


def test_a_resumed_run_uses_the_frozen_part_it_began_with(
    tmp_path: Path, data: sofa_fl.FederatedData
) -> None:
    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            raise KeyboardInterrupt

    config = replace(CONFIG, out=str(tmp_path / "stopped"))
    with pytest.raises(KeyboardInterrupt):
        sofa_fl.run(config, data=data, network=network(), observers=[stop])
    resumed = sofa_fl.resume(tmp_path / "stopped", data=data, network=network(scale=3.0))
    whole = sofa_fl.run(replace(CONFIG, out=str(tmp_path / "whole")), data=data, network=network())
    assert resumed.summary["client"] == whole.summary["client"]
    x = np.ones((2, 50), dtype=np.float32)
    np.testing.assert_array_equal(resumed.predict(x), whole.predict(x))
    with pytest.raises(ModelError, match=r"must be those of the run \(4\)"):
        sofa_fl.predict(whole.run, x, network=network(width=49))


def test_an_exported_model_is_whole(tmp_path: Path, data: sofa_fl.FederatedData) -> None:
    config = replace(CONFIG, out=str(tmp_path / "run"))
    result = sofa_fl.run(config, data=data, network=network())
    file = result.export(tmp_path / "model.safetensors").file
    fresh = network(scale=5.0)()
    fresh.load_state_dict(load_file(file))
    x = np.ones((2, 50), dtype=np.float32)
    with torch.no_grad():
        np.testing.assert_allclose(fresh(torch.from_numpy(x)), result.predict(x), rtol=1e-5)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_frozen(tmp_path, network())
    (file,) = files(tmp_path)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"frozen-.* is damaged: its digest does not match"):
        with_frozen_of(tmp_path, network())
    file.write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"frozen-.* is damaged"):
        with_frozen_of(tmp_path, network())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_what_float16_holds_exactly_takes_two_bytes(tmp_path: Path, dtype: torch.dtype) -> None:
    factory: NetworkFactory = network(dtype=dtype)
    write_frozen(tmp_path, factory)
    (file,) = files(tmp_path)
    assert load_file(file)["0.weight"].dtype == dtype
    expected = frozen_of(build(factory, 0))
    restored = frozen_of(build(with_frozen_of(tmp_path, network(scale=2.0)), 0))
    for name, parameter in expected.items():
        assert restored[name].dtype == torch.float32
        assert torch.equal(restored[name], parameter)


def test_nothing_is_written_for_nothing(tmp_path: Path) -> None:
    write_frozen(tmp_path, lambda: nn.Linear(2, 2))
    assert not list(tmp_path.iterdir())
    factory = network()
    assert with_frozen_of(tmp_path, factory) is factory
