"""What engines are tested on: small data, small networks, and the table of engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData, Samples
from sofa_fl.engine.base import LocalConfig, Outcome, Prior, SureEngine, Task
from sofa_fl.engine.ray_engine import RayEngine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.workers import WorkersEngine
from sofa_fl.models.flat import Model, Vector
from sofa_fl.models.networks import Cnn, Mlp, NetworkFactory
from sofa_fl.topology.tree import NodeId

SHAPE = (1, 8, 8)
NUM_CLASSES = 4
LOCAL = LocalConfig(batches=6, batch_size=16, learning_rate=1e-2)

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
    ),
]

EngineMaker = Callable[[NetworkFactory, FederatedData, LocalConfig], SureEngine]


@dataclass(frozen=True)
class EngineCase:
    """An engine and how it is held against the sequential one.

    Attributes:
        tolerance: By how much a model may differ after a few steps, as a fraction of its norm;
            0 is bit for bit.
    """

    name: str
    make: EngineMaker
    tolerance: float = 0.0

    def __str__(self) -> str:
        return self.name


ENGINES = [
    EngineCase("sequential", SequentialEngine),
    EngineCase("one worker", partial(WorkersEngine, num_workers=1)),
    EngineCase("two workers", partial(WorkersEngine, num_workers=2)),
    EngineCase("stacked", partial(StackedEngine, device="cpu"), tolerance=3e-4),
    EngineCase("ray", partial(RayEngine, num_cpus=2)),
]


def images(num_samples: int, seed: int) -> Arrays:
    """Noisy images whose class is where the bright quarter is."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, NUM_CLASSES, num_samples)
    x = rng.integers(0, 120, (num_samples, *SHAPE))
    for row, label in enumerate(y):
        top, left = 4 * (label // 2), 4 * (label % 2)
        x[row, 0, top : top + 4, left : left + 4] += 90
    return Arrays(x.astype(np.uint8), y, scale=1 / 128, shift=-1.0)


def make_data(sizes: tuple[int, ...] = (40, 90, 17, 64), num_test: int = 30) -> FederatedData:
    """Clients of these sizes; a tenth of each is held out."""
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    tests = np.array_split(np.arange(num_test), len(sizes))
    clients = tuple(
        ClientData(train=own[len(own) // 10 :], holdout=own[: len(own) // 10], test=test)
        for own, test in zip(rows, tests)
    )
    return FederatedData(images(sum(sizes), 0), images(num_test, 1), clients, NUM_CLASSES)


DATA = make_data()


class Dropper(nn.Module):
    """A network that draws while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Dropout(0.5), nn.Linear(24, NUM_CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Scaled(nn.Module):
    """Weights of its own beside layers of its own, a stride, groups and norms without buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.GroupNorm(2, 4),
            nn.Conv2d(4, 4, 3, groups=2, padding="same"),
            nn.MaxPool2d(3, stride=1),
        )
        self.out = nn.Sequential(nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, NUM_CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.features(x) * self.scale)
        return out


class Headed(nn.Module):
    """No biases, a norm over images, and sizes that pooling does not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 3, 2, bias=False), nn.MaxPool2d(2), nn.Tanh())
        self.norm = nn.LayerNorm((3, 3, 3))
        self.out = nn.Linear(27, NUM_CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.norm(self.features(x)).flatten(1))
        return out


NETWORKS: dict[str, NetworkFactory] = {
    "mlp": lambda: Mlp(SHAPE, NUM_CLASSES, hidden=16, batch_norm=False),
    "mlp with BatchNorm": lambda: Mlp(SHAPE, NUM_CLASSES, hidden=16, batch_norm=True),
    "cnn": lambda: Cnn(SHAPE, NUM_CLASSES, batch_norm=False),
    "cnn with BatchNorm": lambda: Cnn(SHAPE, NUM_CLASSES, batch_norm=True),
    "stride, groups, norms": Scaled,
    "odd sizes": Headed,
}
MLP = NETWORKS["mlp"]


def task(
    start: Model,
    client: int = 0,
    *,
    seed: int = 7,
    batches: int = 6,
    samples: Samples | None = None,
    learning_rate: float | None = None,
    prior: Prior | None = None,
) -> Task:
    return Task(
        site=NodeId(client),
        start=start,
        samples=DATA.clients[client].train if samples is None else samples,
        batches=batches,
        seed=seed,
        learning_rate=learning_rate,
        prior=prior,
    )


def distance(a: Vector, b: Vector) -> float:
    return float(torch.linalg.vector_norm(a - b))


@contextmanager
def running(
    case: EngineCase,
    factory: NetworkFactory = MLP,
    data: FederatedData = DATA,
    local: LocalConfig = LOCAL,
) -> Iterator[SureEngine]:
    with closing(case.make(factory, data, local)) as engine:
        yield engine


def assert_close(a: Vector, b: Vector, case: EngineCase) -> None:
    if case.tolerance:
        assert distance(a, b) <= case.tolerance * float(torch.linalg.vector_norm(b))
    else:
        assert torch.equal(a, b)


def assert_same(a: list[Outcome], b: list[Outcome], case: EngineCase) -> None:
    for mine, same in zip(a, b, strict=True):
        assert_close(mine.params, same.params, case)
        assert mine.losses.dtype == same.losses.dtype == np.float32
        assert mine.losses.shape == same.losses.shape
        rtol = max(case.tolerance * 10, 0)
        np.testing.assert_allclose(mine.losses, same.losses, rtol=rtol, atol=rtol)
