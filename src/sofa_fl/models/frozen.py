"""What of a network is not trained: held once per process, and known by a digest."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sofa_fl.errors import ModelError
from sofa_fl.models.networks import NetworkFactory, made

# By name, content and device, the parameters that have these numbers: they lie in memory once.
_held: dict[tuple[str, str, str], list[weakref.ref[Tensor]]] = {}


def frozen_of(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not trained, by name."""
    return {name: p for name, p in network.named_parameters() if not p.requires_grad}


def hold(network: nn.Module, device: torch.device) -> str:
    """Move frozen parameters to a device, where those of equal networks share memory.

    A network that is built again, or copied, therefore costs what it trains. The digest that is
    returned is empty if nothing is frozen.
    """
    frozen = frozen_of(network)
    digests = {name: _digest(parameter) for name, parameter in frozen.items()}
    for name, parameter in frozen.items():
        key = name, digests[name], str(device)
        others = [other for ref in _held.get(key, []) if (other := ref()) is not None]
        there = [other for other in others if other.device.type == device.type]  # none has moved
        parameter.data = there[0].data if there else parameter.data.to(device)
        _held[key] = [weakref.ref(each) for each in (*there, parameter)]
    for key in [key for key, refs in _held.items() if all(ref() is None for ref in refs)]:
        del _held[key]
    return _joint(digests)


def let_go(network: nn.Module) -> None:
    """Share the frozen parameters of a network with no other from now on."""
    own = {id(parameter) for parameter in frozen_of(network).values()}
    for key, refs in list(_held.items()):
        if any(id(ref()) in own for ref in refs):
            del _held[key]


def digest_of(frozen: Mapping[str, Tensor]) -> str:
    """What `hold` returns for a network that has these frozen parameters."""
    return _joint({name: _digest(tensor) for name, tensor in frozen.items()})


def with_frozen(factory: NetworkFactory, frozen: Mapping[str, Tensor]) -> NetworkFactory:
    """A factory of the same network with these frozen parameters in place of its own."""

    def make() -> nn.Module:
        network = made(factory)
        own = frozen_of(network)
        if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in frozen.items()}:
            raise ModelError(
                f"the network's frozen parameters ({len(own)}) must be those of the run "
                f"({len(frozen)}); pass the network that the run was started with"
            )
        for name, parameter in own.items():
            parameter.data = frozen[name].to(parameter.dtype)
        return network

    return make


def _joint(digests: Mapping[str, str]) -> str:
    return _short(repr(sorted(digests.items())).encode()) if digests else ""


def _digest(tensor: Tensor) -> str:
    kind = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    numbers = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return _short(kind, numbers.data)


def _short(*parts: bytes | memoryview) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
