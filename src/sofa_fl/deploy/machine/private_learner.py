"""Training and scoring with differential privacy: DP-SGD, and noised sums of losses.

Every sample's gradient is cut to a length, and noise is added to their sum (arXiv:1607.00133). The
noise comes from the machine, never from the server's seed.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from sofa_fl.deploy.machine.privacy import PrivacyConfig
from sofa_fl.engine.base import Exam, Outcome, Score, Task
from sofa_fl.engine.learner import Learner, each_cross_entropy, optimizer_for, pull_terms
from sofa_fl.errors import ModelError
from sofa_fl.models.mix import as_vector

CHUNK = 64  # samples whose gradients are in memory at a time
LOSS_SHARE = 0.1  # of the clip that a sample's loss may be, as one more coordinate of its gradient


def sampling_rate(num_samples: int, batch_size: int) -> float:
    """The probability with which a sample is in a batch."""
    return min(1.0, batch_size / num_samples)


class PrivateLearner:
    """A learner whose outcomes and scores tell little of any single sample."""

    def __init__(self, learner: Learner, config: PrivacyConfig, rng: np.random.Generator) -> None:
        self.learner, self.config, self.rng = learner, config, rng
        network = learner.network
        if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules()):
            raise ModelError(
                "a private site cannot train BatchNorm, which mixes the samples of a batch; use a "
                "network without it"
            )
        if not learner.is_classifier:
            raise ModelError("a private site takes part in classifications only")

    def train(self, task: Task) -> Outcome:
        """Minimize loss plus pulls, one optimizer step per batch; batches are drawn by chance.

        The losses are noised too: a sample's loss is one more coordinate of its gradient.
        """
        learner, local, config = self.learner, self.learner.local, self.config
        flat, device = learner.flat, learner.device
        start = as_vector(task.start)
        flat.load(start)
        learner.network.train()
        decay, constant = pull_terms(task.pulls, start[: flat.num_trainable])
        constants = flat.pieces(constant) if task.pulls else [torch.zeros(())] * len(flat.weights)
        optimizer = optimizer_for(flat.weights, local, decay, task.pace)
        prior = learner.offsets([task.prior])[0]
        rate = sampling_rate(len(task.samples), local.batch_size)
        # One sample changes the sum by at most this: its gradient, and its loss beside it.
        scale = config.noise * config.clip * (1 + LOSS_SHARE**2) ** 0.5
        losses = np.empty(task.batches, dtype=np.float32)
        for step in range(task.batches):
            chosen = task.samples[self.rng.random(len(task.samples)) < rate]
            sums, loss_sum = self._sums(torch.from_numpy(chosen).to(device), prior)
            for weight, total, pulled in zip(flat.weights, sums, constants):
                noisy = total + scale * self._normal(total.shape).to(device)
                weight.grad = noisy / local.batch_size + pulled.to(device)
            optimizer.step()
            unit = config.max_loss / (LOSS_SHARE * config.clip)
            noisy_loss = loss_sum + scale * unit * self.rng.standard_normal()
            losses[step] = np.clip(noisy_loss / local.batch_size, 0, config.max_loss)
        optimizer.zero_grad(set_to_none=True)
        return Outcome(flat.vector, losses)

    def evaluate(self, exam: Exam) -> Score:
        """Mean loss and accuracy, noised; a sample's loss is cut to `max_loss`."""
        learner, config, num = self.learner, self.config, len(exam.samples)
        learner.flat.load(as_vector(exam.params))
        learner.network.eval()
        prior = learner.offsets([exam.prior])[0]
        loss = hits = 0.0
        with torch.no_grad():
            for rows in torch.split(torch.from_numpy(exam.samples).to(learner.device), 500):
                x, y = learner.stores[exam.split].batch(rows)
                out = learner.network(x) + prior
                each = torch.nan_to_num(each_cross_entropy(out, y), nan=config.max_loss)
                loss += float(each.clamp(0, config.max_loss).double().sum())
                hits += float((out.argmax(dim=1) == y).sum())
        # A sample changes (loss / max_loss, hits) by at most the diagonal of a unit square.
        noise = config.score_noise * 2**0.5 * self.rng.standard_normal(2)
        mean = (loss + config.max_loss * noise[0]) / num
        accuracy = (hits + noise[1]) / num
        return Score(float(np.clip(mean, 0, config.max_loss)), float(np.clip(accuracy, 0, 1)), num)

    def noised_counts(self, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[float]:
        """Class counts with noise, none below 0."""
        noise = self.config.score_noise * self.rng.standard_normal(len(counts))
        return [float(count) for count in np.maximum(counts + noise, 0)]

    def _sums(self, rows: Tensor, prior: Tensor) -> tuple[list[Tensor], float]:
        """The sum of the samples' gradients, each cut to `clip`, and that of their cut losses."""
        network, config = self.learner.network, self.config
        named = dict(network.named_parameters())
        trained = {n: p.detach() for n, p in named.items() if p.requires_grad}
        fixed = {n: p.detach() for n, p in named.items() if not p.requires_grad}
        fixed |= dict(network.named_buffers())

        def loss_of(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            out = functional_call(network, {**weights, **fixed}, (x[None],))
            return each_cross_entropy(out.float() + prior, y[None])[0]

        each = vmap(grad_and_value(loss_of), in_dims=(None, 0, 0), randomness="different")
        sums = {name: torch.zeros_like(weight) for name, weight in trained.items()}
        total = 0.0
        for part in torch.split(rows, CHUNK) if len(rows) else ():
            gradients, losses = each(trained, *self.learner.stores["train"].batch(part))
            squares = [g.flatten(1).double().square().sum(dim=1) for g in gradients.values()]
            norms = torch.stack(squares).sum(dim=0).sqrt()
            is_finite = norms.isfinite() & losses.isfinite()  # what is not counts as nothing
            factors = (config.clip / norms.clamp(min=1e-12)).clamp(max=1).float()
            for name, gradient in gradients.items():
                flat = torch.where(is_finite[:, None], gradient.flatten(1), 0.0)
                weights = torch.where(is_finite, factors, 0.0)
                sums[name] += (weights @ flat).view(sums[name].shape)
            cut = losses.clamp(0, config.max_loss)
            total += float(torch.where(is_finite, cut, 0.0).double().sum())
        return list(sums.values()), total

    def _normal(self, shape: torch.Size) -> Tensor:
        return torch.from_numpy(self.rng.standard_normal(tuple(shape))).float()
