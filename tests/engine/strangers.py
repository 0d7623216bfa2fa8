"""Networks as people write them: each does one thing that is easy to get wrong for many clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import checkpoint

from tests.engine.cases import NUM_CLASSES

WIDTH = 8


class Stranger(nn.Module):
    """A linear layer, whatever `forward` does to its outputs in training or always, and another."""

    def __init__(
        self,
        forward: Callable[[Any, Tensor], Tensor],
        *,
        always: bool = True,
        **parts: nn.Module | Tensor | Any,
    ) -> None:
        super().__init__()
        self.inner, self.always = forward, always
        self.first = nn.Linear(64, WIDTH)
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.out = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.flatten(1))
        out: Tensor = self.out(self.inner(self, h) if self.always or self.training else h)
        return out


def tokens(h: Tensor) -> Tensor:
    """Whole numbers below 11, six per sample."""
    return (h[:, :6].detach() * 10).long() % 11


def sequence(h: Tensor) -> Tensor:
    return h.view(len(h), 4, 2)


# What draws at random in training.


def stochastic_depth(self: Any, h: Tensor) -> Any:
    return h * h.new_empty(len(h), 1).bernoulli_(0.8).div_(0.8)


def mask_made_apart(self: Any, h: Tensor) -> Any:
    mask = torch.empty(len(h), 1, device=h.device)
    mask.bernoulli_(0.8)
    return h * mask


def noises(self: Any, h: Tensor) -> Any:
    """Most of what torch has to draw by."""
    h = h + 0.1 * torch.normal(torch.zeros_like(h), 0.5) + torch.empty_like(h).uniform_(-0.1, 0.1)
    h = h * (1 + 0.1 * torch.randint(3, (len(h), 1))) + 0.1 * h[torch.randperm(len(h))]
    h = h + 0.1 * torch.multinomial(h.softmax(1), 2).sum(dim=1, keepdim=True)
    h = h + torch.distributions.Normal(h, torch.ones_like(h)).rsample() * 0.1
    h = functional.rrelu(h, training=True) + functional.gumbel_softmax(h, hard=True)
    return functional.feature_alpha_dropout(h, 0.2, training=True)


def by_numpy(self: Any, h: Tensor) -> Any:
    return h * float(1 + 0.1 * np.random.rand())  # noqa: NPY002 (as users do)


def dropout_again(self: Any, h: Tensor) -> Any:
    """A checkpoint computes its part again in the backward pass, and must drop the same."""
    part = nn.Sequential(self.layer, nn.Dropout(0.5))
    return checkpoint.checkpoint(part, h, use_reentrant=False)


def dropout_always(self: Any, h: Tensor) -> Any:
    return functional.dropout(h, 0.5)


# What mixes samples, or goes by their values.


def centered(self: Any, h: Tensor) -> Any:
    with torch.no_grad():
        middle = self.first.bias.mean() + h.mean()
    return h - 0.1 * middle


def by_sign(self: Any, h: Tensor) -> Any:
    return 2 * h if h.sum() > 0 else h


def checked(self: Any, h: Tensor) -> Any:
    assert torch.isfinite(h).all()
    return h


def by_number_of_samples(self: Any, h: Tensor) -> Any:
    return h / len(h)


def by_distinct_values(self: Any, h: Tensor) -> Any:
    return h * len(torch.unique(h.round()))


def near_its_weights(self: Any, h: Tensor) -> Any:
    return torch.cdist(h, self.out.weight) @ self.out.weight


# What is kept between calls.


def hidden_state(self: Any, h: Tensor) -> Any:
    h = h if self.state is None else h + 0.5 * self.state
    self.state = h.detach().mean(dim=0)
    return h


def last_means(self: Any, h: Tensor) -> Any:
    self.means.append(h.detach().mean(dim=0))
    return h - sum(self.means) / len(self.means)


def warming_up(self: Any, h: Tensor) -> Any:
    self.calls += 1
    return h * min(1.0, self.calls / 4)


def shown_last(self: Any, h: Tensor) -> Any:
    self.last, self.losses = h, [*self.losses, h.square().mean()]
    return h


def late_buffer(self: Any, h: Tensor) -> Any:
    if not hasattr(self, "zeros"):
        self.register_buffer("zeros", torch.zeros_like(h[0]))
    return h + self.zeros


def seen_so_far(self: Any, h: Tensor) -> Any:
    """An integer that differs from client to client."""
    if self.training:
        self.seen = self.seen + (h.detach() > 0).sum()
    return h / (1 + self.seen)


def running_mean(self: Any, h: Tensor) -> Any:
    if self.training:
        torch.lerp(self.mean, h.detach().mean(dim=0), 0.3, out=self.mean)
    return h - self.mean


# What has a form of its own, or none, in `torch.func`.


def scattered(self: Any, h: Tensor) -> Any:
    sums = torch.zeros(len(h), 3)
    sums.index_add_(1, self.places, h)
    return h + sums.mean(dim=1, keepdim=True)


def lstm_cell(self: Any, h: Tensor) -> Any:
    state = torch.zeros(len(h), WIDTH), torch.zeros(len(h), WIDTH)
    for step in sequence(h).unbind(1):
        state = self.cell(step, state)
    return state[0]


def masked_encoder(self: Any, h: Tensor) -> Any:
    found = self.encoder(sequence(h), mask=self.mask)
    return found.flatten(1)


def padded_encoder(self: Any, h: Tensor) -> Any:
    padding = torch.zeros(len(h), 4, dtype=torch.bool)
    padding[:, -1] = True
    found = self.encoder(sequence(h), src_key_padding_mask=padding)
    return found.masked_fill(padding[..., None], 0.0).flatten(1)


def embedded(self: Any, h: Tensor) -> Any:
    return h + self.embedding(tokens(h)).mean(dim=1) + self.bag(tokens(h))


def written_input(self: Any, h: Tensor) -> Any:
    h -= h.mean(dim=1, keepdim=True)
    return h


def transformed(self: Any, h: Tensor) -> Any:
    """Has a transform of its own inside."""
    return torch.vmap(lambda weight: functional.linear(h, weight))(self.three).mean(dim=0)


def spectral(self: Any, h: Tensor) -> Any:
    return self.layer(h)


def encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(2, 2, 4, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 1, **options)


def with_norm() -> nn.Module:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))


def overlapping() -> nn.Module:
    """Two parameters of which one is a part of the other's memory."""
    middle, last = nn.Linear(8, 8), nn.Linear(8, NUM_CLASSES)
    last.weight = nn.Parameter(middle.weight.data[4:])
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), middle, last)


LAYERS, MAPPED, ALONE = "layer by layer", "by torch.func", "trained one by one, since "
IN_TRAINING = "by torch.func in training; models are scored one by one, since "
BATCH = "the network's output for a sample depends on the rest of the batch"
READS = "the network depends on a value (`if`, `.item()`) that may differ from client to client"
KEEPS = f"{ALONE}the network keeps tensors between calls in attributes that are not buffers"
STRANGERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "stochastic depth": (lambda: Stranger(stochastic_depth, always=False), LAYERS),
    "mask made apart": (lambda: Stranger(mask_made_apart, always=False), LAYERS),
    "mask made apart, mapped": (
        lambda: Stranger(mask_made_apart, always=False, scale=torch.ones(1)), MAPPED,
    ),
    "all noises": (lambda: Stranger(noises, always=False), MAPPED),
    "by NumPy": (lambda: Stranger(by_numpy, always=False),
        f"{ALONE}the network draws random numbers with NumPy or Python's random",
    ),
    "dropout again": (
        lambda: Stranger(dropout_again, always=False, layer=nn.Linear(WIDTH, WIDTH)),
        f"{ALONE}a checkpoint of the network draws new random numbers in the backward pass",
    ),
    "dropout always": (
        lambda: Stranger(dropout_always),
        "layer by layer in training; models are scored one by one, since the network draws "
        "random numbers in evaluation, too",
    ),
    "centered": (lambda: Stranger(centered), IN_TRAINING + BATCH),
    "by sign": (lambda: Stranger(by_sign, always=False), MAPPED),
    "checked": (lambda: Stranger(checked), IN_TRAINING + READS),
    "by number of samples": (lambda: Stranger(by_number_of_samples), IN_TRAINING + BATCH),
    "by distinct values": (
        lambda: Stranger(by_distinct_values, always=False),
        f"{ALONE}the shape of a tensor depends on values in it",
    ),
    "near its weights": (lambda: Stranger(near_its_weights), MAPPED),
    "hidden state": (lambda: Stranger(hidden_state, state=None), KEEPS),
    "last means": (lambda: Stranger(last_means, means=deque(maxlen=2)), KEEPS),
    "warming up": (lambda: Stranger(warming_up, calls=0), LAYERS),
    "shown last": (lambda: Stranger(shown_last, losses=[]), LAYERS),
    "late buffer": (lambda: Stranger(late_buffer), LAYERS),
    "seen so far": (lambda: Stranger(seen_so_far, seen=torch.tensor(0)), MAPPED),
    "running mean": (lambda: Stranger(running_mean, mean=torch.zeros(WIDTH)), MAPPED),
    "scattered": (lambda: Stranger(scattered, places=torch.arange(WIDTH) % 3), MAPPED),
    "LSTM cell": (lambda: Stranger(lstm_cell, cell=nn.LSTMCell(2, WIDTH)), MAPPED),
    "mask of minus infinity": (
        lambda: Stranger(
            masked_encoder, encoder=encoder(), mask=torch.full((4, 4), -torch.inf).triu(1)
        ),
        MAPPED,
    ),
    "padding": (
        lambda: Stranger(padded_encoder, encoder=encoder(enable_nested_tensor=False)), MAPPED,
    ),
    "sparse gradients": (
        lambda: Stranger(
            embedded,
            embedding=nn.Embedding(11, WIDTH, padding_idx=0, sparse=True),
            bag=nn.EmbeddingBag(11, WIDTH, mode="sum", sparse=True),
        ),
        MAPPED,
    ),
    "written input": (lambda: Stranger(written_input), LAYERS),
    "spectral norm": (lambda: Stranger(spectral, layer=with_norm()), MAPPED),
    "transformed": (
        lambda: Stranger(transformed, three=nn.Parameter(torch.randn(3, WIDTH, WIDTH))), MAPPED,
    ),
    "overlapping parameters": (overlapping, LAYERS),
}  # fmt: skip
