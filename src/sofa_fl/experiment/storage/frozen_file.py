"""The frozen part of a run's network: written once, into a file that is named by its digest.

Checkpoints hold the rest. A resumed run and an export take the frozen part from here, so that it
does not matter whether the base can still be found, or is still the same, where it came from.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sofa_fl.experiment.storage.disk import DamagedError, replacing
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.frozen import digest_of, with_frozen
from sofa_fl.models.networks import NetworkFactory, build

PREFIX = "frozen-"


def write_frozen(folder: Path, factory: NetworkFactory) -> None:
    """Write the frozen part of a network into a run folder; nothing if nothing is frozen.

    Numbers that float16 can hold exactly take two bytes, as a base that came in float16 did.
    """
    flat = FlatNetwork(build(factory, 0))
    file = folder / f"{PREFIX}{flat.frozen_digest}.safetensors"
    if not flat.frozen or file.exists():
        return
    whole = {name: parameter.detach() for name, parameter in flat.frozen.items()}
    kinds = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in whole.items()}
    small = {name: _small(tensor) for name, tensor in whole.items()}
    with replacing(file) as temporary:
        save_file(small, temporary, {"kinds": json.dumps(kinds)})


def with_frozen_of(folder: Path, factory: NetworkFactory) -> NetworkFactory:
    """The network of a run, with the frozen part that its folder holds, if it holds one."""
    files = sorted(folder.glob(f"{PREFIX}*.safetensors"))
    return with_frozen(factory, _read(files[0])) if files else factory


def _read(file: Path) -> dict[str, Tensor]:
    try:
        with safe_open(file, framework="pt") as opened:
            kinds = json.loads(opened.metadata()["kinds"])
            frozen = {
                name: opened.get_tensor(name).to(getattr(torch, kind))
                for name, kind in kinds.items()
            }
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{file} is damaged: {error}") from None
    if digest_of(frozen) != file.stem.removeprefix(PREFIX):
        raise DamagedError(f"{file} is damaged: its digest does not match")
    return frozen


def _small(tensor: Tensor) -> Tensor:
    """In memory of its own: the format has no two tensors in one place."""
    half = tensor.half().contiguous()
    exact = half if torch.equal(half.to(tensor.dtype), tensor) else tensor
    return exact.clone(memory_format=torch.contiguous_format)
