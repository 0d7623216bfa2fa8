"""The networks that ship with the package, by name; and what of any network is frozen.

Frozen parameters are held once per process, and known by a digest.
"""

from __future__ import annotations

import hashlib
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from sofa_fl.errors import ModelError
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.pretrained import Pretrained
from sofa_fl.seeding import seed_for

NetworkFactory = Callable[[], nn.Module]
LOADING = "Loading weights"  # the title of a bar that `transformers` draws for every model
# By name, content and device, the parameters that have these numbers: they lie in memory once.
_held: dict[tuple[str, str, str], list[weakref.ref[Tensor]]] = {}


class Cnn(nn.Module):
    """The paper's network: convolutions of 32 and 64 channels, linear layers of 600, 120, out.

    Pooling comes before the ReLU: the result is the same, at a quarter of the work.
    """

    def __init__(self, shape: tuple[int, ...], num_outputs: int, *, batch_norm: bool) -> None:
        super().__init__()
        channels, height, width = shape
        norm = nn.BatchNorm2d if batch_norm else lambda _channels: nn.Identity()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1),
            norm(32),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            norm(64),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
        )
        flat = 64 * ((height // 2 - 2) // 2) * ((width // 2 - 2) // 2)
        if height < 8 or width < 8:
            raise ModelError(f"the cnn needs images of at least 8 by 8, got {height} by {width}")
        self.head = nn.Sequential(nn.Linear(flat, 600), nn.ReLU(), nn.Linear(600, 120), nn.ReLU())
        self.out = nn.Linear(120, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.head(self.features(x)))
        return out


class Mlp(nn.Module):
    """Hidden layers of the given widths, for anything that can be flattened."""

    def __init__(
        self,
        shape: tuple[int, ...],
        num_outputs: int,
        *,
        hidden: int | Sequence[int],
        batch_norm: bool,
    ) -> None:
        super().__init__()
        size = int(torch.Size(shape).numel())
        layers: list[nn.Module] = [nn.Flatten()]
        for width in [hidden] if isinstance(hidden, int) else hidden:
            norm = nn.BatchNorm1d(width) if batch_norm else nn.Identity()
            layers += [nn.Linear(size, width), norm, nn.ReLU()]
            size = width
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(size, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.body(x))
        return out


def network_factory(
    config: ModelConfig, shape: tuple[int, ...], num_outputs: int
) -> NetworkFactory:
    """A function that makes the configured network for inputs of `shape`."""
    if config.name == "own":
        raise ModelError(
            "model.name=own means that Python code passes the network; pass network=..., or set "
            "model.name to cnn or mlp"
        )
    if config.name == "mlp":
        return lambda: Mlp(shape, num_outputs, hidden=config.hidden, batch_norm=config.batch_norm)
    if len(shape) != 3:
        raise ModelError(
            f"the cnn needs inputs of shape (channels, height, width), got {shape}; use the mlp, "
            "or pass your own network"
        )
    return lambda: Cnn(shape, num_outputs, batch_norm=config.batch_norm)


def made(factory: NetworkFactory) -> nn.Module:
    """What a factory makes; a model of `transformers` as a network that takes our arrays."""
    with without_loading_bars():
        network = factory()
    if not isinstance(network, nn.Module):
        raise ModelError(f"a network must be a torch.nn.Module, got {type(network).__name__}")
    return Pretrained(network) if is_pretrained(network) else network


@contextmanager
def without_loading_bars() -> Iterator[None]:
    """Draw no bar for weights that are read from disk; those of downloads stay.

    A run makes its network several times in every process, each in a fraction of a second.
    """
    told: Any = sys.modules.get("transformers.utils.logging")
    set_hook = getattr(told, "set_tqdm_hook", None)
    if set_hook is None:
        yield
        return

    def draw(bar: Callable[..., Any], given: Sequence[Any], named: dict[str, Any]) -> Any:
        if named.get("desc") == LOADING:
            named = {**named, "disable": True}
        return before(bar, given, named) if before else bar(*given, **named)

    before = set_hook(draw)
    try:
        yield
    finally:
        set_hook(before)


def is_pretrained(network: nn.Module) -> bool:
    """Whether a network is a model of `transformers`, or made of one."""
    return hasattr(network, "main_input_name") and hasattr(network, "config")


def seed_draws(seed: int) -> None:
    """Seed torch's global generators; `torch.manual_seed` formats the stack without a GPU."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """In here the global generators that networks use (torch, NumPy, Python) start at `seed`."""
    pythons, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002
    on_gpu = device is not None and device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        seed_draws(seed)
        random.seed(seed)
        np.random.seed(seed % (1 << 32))  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(pythons)
            np.random.set_state(numpys)  # noqa: NPY002


def build(factory: NetworkFactory, seed: int) -> nn.Module:
    """A network whose first weights depend on `seed` alone.

    Networks draw their weights from global generators; they are put back afterwards.
    """
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ModelError(
            "network must be a function that returns a new network, got a "
            f"{type(factory).__name__}; pass network=lambda: {type(factory).__name__}(...)"
        )
    with seeded(seed_for(seed, "network")):
        network = made(factory)
    parameters: list[tuple[str, object]] = list(network.named_parameters())
    if lazy := [name for name, p in parameters if isinstance(p, UninitializedParameter)]:
        raise ModelError(
            f"the size of {lazy[0]} is unknown until the network is used; give every layer its "
            "sizes, for example Linear instead of LazyLinear"
        )
    return network


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
