"""Networks as users bring them, tiny for tests and of a usual size for benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData
from sofa_fl.engine.base import Engine, Outcome, Task
from sofa_fl.models.flat import as_vector
from sofa_fl.models.networks import Cnn, Mlp, NetworkFactory
from sofa_fl.topology.tree import NodeId

CLASSES = 10


@dataclass(frozen=True)
class Size:
    """How large the networks of the zoo are, and what they are given."""

    width: int  # channels of the first convolution
    side: int  # of images
    length: int  # of sequences
    features: int  # of tokens
    blocks: int  # of transformers
    vocabulary: int


TINY = Size(width=4, side=16, length=5, features=8, blocks=1, vocabulary=11)
USUAL = Size(width=32, side=32, length=32, features=128, blocks=2, vocabulary=1000)


def _same(x: Tensor) -> Tensor:
    return x


class Residual(nn.Module):
    """Two convolutions beside a shortcut, which has one of its own where shapes change."""

    def __init__(self, given: int, out: int, stride: int, *, norm: bool = True) -> None:
        super().__init__()
        make = nn.BatchNorm2d if norm else lambda _channels: nn.Identity()
        self.first = nn.Conv2d(given, out, 3, stride, padding=1, bias=not norm)
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=not norm)
        self.norms = nn.ModuleList([make(out), make(out)])
        self.short: Callable[[Tensor], Tensor] = _same
        if stride != 1 or given != out:
            self.short = nn.Sequential(nn.Conv2d(given, out, 1, stride, bias=False), make(out))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet(size: Size, depths: tuple[int, ...], *, norm: bool = True) -> nn.Module:
    """Stages of residual blocks, each with half the pixels and twice the channels of the last."""
    width = size.width
    make = nn.BatchNorm2d(width) if norm else nn.Identity()
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=not norm), make, nn.ReLU()]
    for stage, depth in enumerate(depths):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            given = width if block or not stage else width // 2
            layers.append(Residual(given, width, stride, norm=norm))
        width *= 2
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width // 2, CLASSES)]
    return nn.Sequential(*layers, *head)


def mobilenet(size: Size) -> nn.Module:
    """Depthwise convolutions between pointwise ones."""

    def block(given: int, out: int, stride: int) -> list[nn.Module]:
        wide = 2 * given
        return [
            nn.Conv2d(given, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out),
        ]  # fmt: skip

    w = size.width
    layers = [nn.Conv2d(3, w, 3, 2, padding=1), *block(w, w, 1), *block(w, 2 * w, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * w, CLASSES))


def vgg(size: Size) -> nn.Module:
    w, side = size.width, size.side // 4
    return nn.Sequential(
        nn.Conv2d(3, w, 3, padding=1), nn.ReLU(), nn.Conv2d(w, w, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout2d(0.1),
        nn.Conv2d(w, 2 * w, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(2 * w * side * side, 8 * w), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(8 * w, CLASSES),
    )  # fmt: skip


def groupnorm_cnn(size: Size) -> nn.Module:
    w, side = size.width, size.side // 4
    return nn.Sequential(
        nn.Conv2d(3, w, 3, padding=1), nn.GroupNorm(2, w), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(w, 2 * w, 3, padding=1), nn.GroupNorm(4, 2 * w), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * w * side * side, CLASSES),
    )  # fmt: skip


class Upscaling(nn.Module):
    """A transposed convolution, a one-dimensional one, and weights outside of any layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        w = size.width
        self.down = nn.Conv2d(3, w, 3, 2, padding=1, dilation=1)
        self.up = nn.ConvTranspose2d(w, w, 4, 2, padding=1)
        self.rows = nn.Conv1d(w, w, 3, padding=2, dilation=2)
        self.scale = nn.Parameter(torch.ones(w, 1))
        self.out = nn.Linear(w, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.up(torch.relu(self.down(x))))
        x = torch.relu(self.rows(x.mean(dim=3) * self.scale))
        out: Tensor = self.out(x.mean(dim=2))
        return out


class Recurrent(nn.Module):
    """An embedding, a recurrent layer, and the last of its outputs."""

    def __init__(self, size: Size, kind: Literal["gru", "lstm", "deep"]) -> None:
        super().__init__()
        width = size.features
        self.embed = nn.Embedding(size.vocabulary, width, padding_idx=0)
        self.rnn: nn.Module = nn.LSTM(width, width, batch_first=True)
        if kind == "gru":
            self.rnn = nn.GRU(width, width, batch_first=True)
        if kind == "deep":  # both ways, with dropout between its layers
            self.rnn = nn.GRU(width, width, 2, batch_first=True, dropout=0.3, bidirectional=True)
        self.out = nn.Linear(2 * width if kind == "deep" else width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.rnn(self.embed(x.long()))[0][:, -1])
        return out


class Encoder(nn.Module):
    """Torch's own Transformer encoder over tokens."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.features
        self.embed = nn.Embedding(size.vocabulary, width)
        self.place = nn.Parameter(0.02 * torch.randn(size.length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, size.blocks, enable_nested_tensor=False)
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.body(self.embed(x.long()) + self.place).mean(dim=1))
        return out


class Vit(nn.Module):
    """Patches of an image as tokens, and a class token of its own."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width, patch = size.features, size.side // 4
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(0.02 * torch.randn(1, 17, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, size.blocks, enable_nested_tensor=False)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], dim=1) + self.place
        out: Tensor = self.out(self.norm(self.body(tokens)[:, 0]))
        return out


class Decoder(nn.Module):
    """As GPT: causal attention, and outputs by the embedding's own weights."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.features
        self.heads, self.drop = 4, 0.1
        self.embed = nn.Embedding(size.vocabulary, width)
        self.place = nn.Embedding(size.length, width)
        self.register_buffer("positions", torch.arange(size.length))
        self.blocks = nn.ModuleList()
        for _ in range(size.blocks):
            parts = {
                "one": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width),
                "join": nn.Linear(width, width), "two": nn.LayerNorm(width),
                "mlp": nn.Sequential(
                    nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
                ),
            }  # fmt: skip
            self.blocks.append(nn.ModuleDict(parts))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, size.vocabulary, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.long()) + self.place(self.positions)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleDict)
            cut = block["qkv"](block["one"](x)).chunk(3, dim=-1)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in cut)
            drop = self.drop if self.training else 0.0
            found = functional.scaled_dot_product_attention(q, k, v, None, drop, is_causal=True)
            x = x + functional.dropout(
                block["join"](found.transpose(1, 2).flatten(2)), self.drop, self.training
            )
            x = x + block["mlp"](block["two"](x))
        out: Tensor = self.out(self.norm(x[:, -1]))
        return out


@dataclass(frozen=True)
class Animal:
    """A network of the zoo: how it is made, what it is given, and whether it draws."""

    make: Callable[[Size], nn.Module]
    given: Literal["images", "tokens"] = "images"
    draws: bool = False

    def factory(self, size: Size) -> NetworkFactory:
        return lambda: self.make(size)


def _shape(size: Size) -> tuple[int, int, int]:
    return (3, size.side, size.side)


ZOO: dict[str, Animal] = {
    "MLP": Animal(lambda s: Mlp(_shape(s), CLASSES, hidden=4 * s.width, batch_norm=False)),
    "our CNN": Animal(lambda s: Cnn(_shape(s), CLASSES, batch_norm=False)),
    "GroupNorm CNN": Animal(groupnorm_cnn),
    "VGG, Dropout": Animal(vgg, draws=True),
    "ResNet, BatchNorm": Animal(lambda s: resnet(s, (1, 1, 1))),
    "ResNet, no norm": Animal(lambda s: resnet(s, (1, 1, 1), norm=False)),
    "ResNet-18": Animal(lambda s: resnet(replace(s, width=2 * s.width), (2, 2, 2, 2))),
    "MobileNet block": Animal(mobilenet),
    "transposed, 1D": Animal(Upscaling),
    "embedding + GRU": Animal(lambda s: Recurrent(s, "gru"), "tokens"),
    "embedding + LSTM": Animal(lambda s: Recurrent(s, "lstm"), "tokens"),
    "GRU, deep, Dropout": Animal(lambda s: Recurrent(s, "deep"), "tokens", draws=True),
    "Transformer encoder": Animal(Encoder, "tokens", draws=True),
    "small ViT": Animal(Vit),
    "GPT, tied embedding": Animal(Decoder, "tokens", draws=True),
}


def distance(found: Sequence[Outcome], other: Sequence[Outcome], tasks: Sequence[Task]) -> float:
    """By how much models differ, over how far they have moved: root mean square over clients."""
    each = []
    for one, same, task in zip(found, other, tasks, strict=True):
        moved = (same.params - as_vector(task.start)).norm()
        each.append(float((one.params - same.params).norm() / moved))
    return float(np.sqrt(np.mean(np.square(each))))


def zoo_tasks(engine: Engine, data: FederatedData, batches: int) -> list[Task]:
    """Every client from a model of its own."""
    return [
        Task(site=NodeId(i), start=engine.initial(i), samples=c.train, batches=batches, seed=i)
        for i, c in enumerate(data.clients)
    ]


def zoo_data(animal: Animal, size: Size, num_clients: int, each: int) -> FederatedData:
    """What the network is given: classes that can be told apart, `each` samples per client."""
    rng = np.random.default_rng(0)
    total = num_clients * each
    y = rng.integers(0, CLASSES, total)
    if animal.given == "images":
        bright = rng.normal(size=(CLASSES, *_shape(size)))
        x = (bright[y] + rng.normal(size=(total, *_shape(size)))).astype(np.float32)
    else:  # the class is the most frequent token
        x = rng.integers(CLASSES, size.vocabulary, (total, size.length)).astype(np.float32)
        x[rng.random(x.shape) < 0.4] = -1
        x = np.where(x < 0, y[:, None], x).astype(np.float32)
    rows = np.split(np.arange(total), num_clients)
    clients = tuple(ClientData(train=own, holdout=own[:0], test=own[:2]) for own in rows)
    return FederatedData(Arrays(x, y), Arrays(x, y), clients, CLASSES)
