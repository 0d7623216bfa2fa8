"""The networks that ship with the package; and how any network is made, seeded and called."""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from sofa_fl.errors import ModelError, SofaError, release
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.pretrained import Pretrained
from sofa_fl.seeding import seed_for

T = TypeVar("T")
NetworkFactory = Callable[[], nn.Module]
LOADING = "Loading weights"  # the title of a bar that `transformers` draws for every model


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


class Home:
    """On the CPU, as ever; but if a network then fails on a GPU, there.

    `torch.zeros(3)` in a `forward` is no fault on a CPU, and anywhere else it is. It is not put
    on the GPU for all: many networks make small tensors to read numbers off them.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.is_default = device, False

    def __call__(self) -> AbstractContextManager[object]:
        """What is around every call of the network, and around its backward pass."""
        return self.device if self.is_default else nullcontext()

    def trying(self, call: Callable[[], T]) -> T:
        """What `call` returns, here or there; its first error if it fails both times."""
        try:
            with self():
                return call()
        except ModelError as error:
            if self.is_default or self.device.type == "cpu":
                raise
            first = error
            release(error)
        self.is_default = True
        try:
            with self():
                return call()
        except ModelError:
            self.is_default = False
            raise first from None


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Say in one sentence what a user's network raises in here."""
    try:
        yield
    except (SofaError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise ModelError(f"{what}: {said_by(error)}{_where(error)}") from error


def _where(error: Exception) -> str:
    """The last line of the user's that an error went through; torch and this package are none."""
    others = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<")
    frames = traceback.extract_tb(error.__traceback__)
    if own := [frame for frame in frames if not frame.filename.startswith(others)]:
        return f" ({own[-1].filename}, line {own[-1].lineno})"
    return ""


def said_by(error: Exception) -> str:
    """The first line of an error, with its type where that line alone says little."""
    lines = str(error).strip().splitlines()
    if isinstance(error, RuntimeError | ValueError | TypeError) and lines:
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
