"""Training with differential privacy (DP-SGD, arXiv:1607.00133), one task or a stack of them.

Batches are drawn sample by sample, the gradient of every sample is cut to a length, and noise is
added to their sum. Losses are noised as well: a sample's is one more coordinate of its gradient.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import Noising, Outcome, Task
from sofa_fl.engine.learner import Learner, each_cross_entropy, optimizer_for, pull_terms
from sofa_fl.errors import ModelError
from sofa_fl.models.flat import as_vector
from sofa_fl.models.networks import naming, seed_draws

CHUNK = 64  # samples whose gradients are in memory at a time
LOSS_SHARE = 0.1  # of the clip that a sample's loss may be, as one more coordinate of its gradient
PRIVATELY = "the network cannot be trained with privacy, which needs the gradient of every sample"
Named = dict[str, Tensor]


class NoiseSource(Protocol):
    """Where draws come from."""

    def chosen(self, samples: Samples, rate: float) -> Samples:
        """Each of the samples with probability `rate`."""

    def normal(self, size: int) -> Tensor:
        """So many numbers of a standard normal distribution, in float32."""


class SeededNoise:
    """The noise of a simulation: the same for the same seed, on every engine and device."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def chosen(self, samples: Samples, rate: float) -> Samples:
        return samples[self.rng.random(len(samples)) < rate]

    def normal(self, size: int) -> Tensor:
        return torch.randn(size, generator=self.generator)


def check_private_network(learner: Learner) -> None:
    """Raise if a network cannot be trained with privacy."""
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in learner.network.modules()):
        raise ModelError(
            "privacy is not possible with BatchNorm, which mixes the samples of a batch; use a "
            "network without it"
        )
    if not learner.is_classifier:
        raise ModelError("privacy is possible only in classification, but this is a regression")


def noise_scale(noising: Noising) -> float:
    """The noise of a sum, by what one sample changes: its gradient, and its loss beside it."""
    return noising.noise * noising.clip * float((1 + LOSS_SHARE**2) ** 0.5)


def noised_loss(total: float, draw: float, noising: Noising, batch_size: int) -> float:
    """The mean loss of a batch, from the sum of its samples' cut losses."""
    unit = noising.max_loss / (LOSS_SHARE * noising.clip)
    noisy = total + noise_scale(noising) * unit * draw
    return min(max(noisy / batch_size, 0.0), noising.max_loss)


@naming(PRIVATELY)
def train_privately(learner: Learner, task: Task, noising: Noising, source: NoiseSource) -> Outcome:
    """Minimize loss plus pulls, one optimizer step per batch."""
    check_private_network(learner)
    local, flat, device = learner.local, learner.flat, learner.device
    start, span = as_vector(task.start), flat.span(task.part)
    flat.load(start)
    learner.network.train()
    decay, constant = pull_terms(task.pulls, start[: flat.num_trainable])
    weights = flat.weights[span]
    constants = flat.pieces(constant)[span] if task.pulls else [torch.zeros(())] * len(weights)
    optimizer = optimizer_for(weights, local, decay, task.learning_rate)
    prior = learner.offsets([task.prior])[0]
    rate = min(1.0, local.batch_size / len(task.samples))
    sizes = [weight.numel() for weight in weights]
    losses = np.empty(task.batches, dtype=np.float32)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        seed_draws(task.seed)
        for step in range(task.batches):
            chosen = source.chosen(task.samples, rate)
            noise = source.normal(sum(sizes) + 1)
            drawn = torch.split(noise_scale(noising) * noise[:-1].to(device), sizes)
            sums, total = clipped_sums(
                learner, torch.from_numpy(chosen).to(device), prior, noising, span
            )
            for weight, summed, extra, pulled in zip(weights, sums, drawn, constants):
                noisy = summed + extra.view(summed.shape)
                weight.grad = noisy / local.batch_size + pulled.to(device)
            optimizer.step()
            losses[step] = noised_loss(total, float(noise[-1]), noising, local.batch_size)
    learner.network.zero_grad(set_to_none=True)
    return Outcome(flat.vector, losses)


def clipped_sums(
    learner: Learner, rows: Tensor, prior: Tensor, noising: Noising, span: slice
) -> tuple[list[Tensor], float]:
    """The sum of the samples' gradients, each cut to the clip, and that of their cut losses."""
    network = learner.network
    named = {name: p.detach() for name, p in network.named_parameters()}
    names = [name for name, p in network.named_parameters() if p.requires_grad][span]
    trained = {name: named[name] for name in names}
    fixed = {n: p for n, p in named.items() if n not in trained} | dict(network.named_buffers())

    def loss_of(weights: Named, x: Tensor, y: Tensor) -> Tensor:
        with learner.flat.home():
            out = functional_call(network, {**weights, **fixed}, (x[None],))
        return each_cross_entropy(out.float() + prior, y[None])[0]

    each = vmap(grad_and_value(loss_of), in_dims=(None, 0, 0), randomness="different")
    sums = {name: torch.zeros_like(weight) for name, weight in trained.items()}
    total = 0.0
    for part in torch.split(rows, CHUNK) if len(rows) else ():
        gradients, losses = each(trained, *learner.stores["train"].batch(part))
        factors = cut_factors(gradients, losses, noising.clip, dims=1)
        for name, gradient in gradients.items():
            sums[name] += (factors @ finite(gradient.flatten(1))).view(sums[name].shape)
        total += float(cut_losses(losses, factors, noising.max_loss).double().sum())
    return list(sums.values()), total


def cut_factors(gradients: Named, losses: Tensor, clip: float | Tensor, dims: int) -> Tensor:
    """By how much every sample's gradient is shortened; 0 for one that is not finite."""
    norms = [torch.linalg.vector_norm(g.flatten(dims), dim=dims) for g in gradients.values()]
    whole = torch.linalg.vector_norm(torch.stack(norms).double(), dim=0)
    is_finite = whole.isfinite() & losses.isfinite()
    return torch.where(is_finite, (clip / whole.clamp(min=1e-12)).clamp(max=1), 0.0).float()


def cut_losses(losses: Tensor, factors: Tensor, most: float | Tensor) -> Tensor:
    """Losses up to `most`; 0 where the gradient counts as nothing."""
    return torch.where(factors > 0, losses.clamp(max=most), 0.0)


def finite(values: Tensor) -> Tensor:
    """Values with 0 in place of those that are not finite, which a factor of 0 does not remove."""
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
