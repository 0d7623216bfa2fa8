"""Private training of a whole stack: `torch.func` maps over clients, and in each over samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from sofa_fl.engine.base import Noising, Outcome, Task
from sofa_fl.engine.learner import Learner, each_cross_entropy, optimizer_for, pull_terms
from sofa_fl.engine.private import (
    PRIVATELY,
    Named,
    SeededNoise,
    check_private_network,
    cut_factors,
    cut_losses,
    finite,
    noise_scale,
    noised_loss,
)
from sofa_fl.models.flat import as_vector
from sofa_fl.models.networks import naming

MOST_GRADIENTS = 1 << 28  # numbers of all samples' gradients at a time: a gigabyte


@naming(PRIVATELY)
def train_stack_privately(
    learner: Learner, tasks: Sequence[Task], noising: Sequence[Noising]
) -> list[Outcome]:
    """As `train_privately` of each task; their batches, learning rate and part are the same."""
    check_private_network(learner)
    stack = _Stack(learner, tasks)
    local, device, batch_size = learner.local, learner.device, learner.local.batch_size
    sources = [SeededNoise(task.seed) for task in tasks]
    rates = [min(1.0, batch_size / len(task.samples)) for task in tasks]
    scales = torch.tensor([noise_scale(each) for each in noising])
    optimizer = optimizer_for(stack.weights, local, learning_rate=tasks[0].learning_rate)
    losses = np.empty((len(tasks), tasks[0].batches), dtype=np.float32)
    for step in range(tasks[0].batches):
        chosen = [s.chosen(t.samples, rate) for s, t, rate in zip(sources, tasks, rates)]
        noise = torch.stack([source.normal(stack.size + 1) for source in sources])
        drawn = torch.split((scales[:, None] * noise[:, :-1]).to(device), stack.sizes, dim=1)
        sums, totals = stack.clipped_sums(chosen, noising)
        for weight, summed, extra, constant in zip(stack.weights, sums, drawn, stack.constants):
            decay = stack.decays.view(-1, *[1] * (weight.ndim - 1))
            noisy = (summed + extra.view(summed.shape)) / batch_size
            weight.grad = noisy + constant + decay * weight.detach()
        optimizer.step()
        for at, each in enumerate(noising):
            losses[at, step] = noised_loss(totals[at], float(noise[at, -1]), each, batch_size)
    return [Outcome(vector, curve) for vector, curve in zip(stack.unload(), losses)]


class _Stack:
    """The models of all tasks by name, with a first dimension of clients; some are trained."""

    def __init__(self, learner: Learner, tasks: Sequence[Task]) -> None:
        flat, self.learner, self.num = learner.flat, learner, len(tasks)
        self.places = flat.places
        rows = torch.stack([as_vector(task.start) for task in tasks])
        named = {
            name: rows[:, self.places[name]].reshape(self.num, *tensor.shape).clone()
            for name, tensor in flat.tensors.items()
            if name in self.places
        }
        network = learner.network.train()
        trainable = [name for name, p in network.named_parameters() if p.requires_grad]
        self.names = trainable[flat.span(tasks[0].part)]
        self.trained = {name: named[name].requires_grad_() for name in self.names}
        self.weights = list(self.trained.values())
        self.sizes = [weight[0].numel() for weight in self.weights]
        self.size = sum(self.sizes)
        self.own = {name: tensor for name, tensor in named.items() if name not in self.trained}
        terms = [pull_terms(task.pulls, rows[0][: flat.num_trainable]) for task in tasks]
        self.decays = torch.tensor([decay for decay, _ in terms], device=learner.device)
        pulled = [dict(zip(trainable, flat.pieces(constant))) for _, constant in terms]
        self.constants = [torch.stack([each[name] for each in pulled]) for name in self.names]
        self.priors = learner.offsets([task.prior for task in tasks])

        def loss_of(weights: Named, own: Named, prior: Tensor, x: Tensor, y: Tensor) -> Tensor:
            with learner.flat.home():
                out = functional_call(network, {**weights, **own}, (x[None],))
            return each_cross_entropy(out.float() + prior, y[None])[0]

        of_samples = vmap(
            grad_and_value(loss_of), in_dims=(None, None, None, 0, 0), randomness="different"
        )
        self.gradients = vmap(of_samples, randomness="different")

    def clipped_sums(
        self, chosen: Sequence[np.ndarray], noising: Sequence[Noising]
    ) -> tuple[list[Tensor], list[float]]:
        """Of every client, the sum of its samples' cut gradients, and that of their cut losses."""
        device, store = self.learner.device, self.learner.stores["train"]
        longest = max(map(len, chosen))
        rows = np.zeros((self.num, longest), dtype=np.int64)
        is_there = np.zeros((self.num, longest), dtype=np.bool_)
        for row, flags, own in zip(rows, is_there, chosen):
            row[: len(own)], flags[: len(own)] = own, True
        weights = {name: weight.detach() for name, weight in self.trained.items()}
        sums = [torch.zeros_like(weight) for weight in weights.values()]
        totals = torch.zeros(self.num, dtype=torch.float64, device=device)
        clips = torch.tensor([each.clip for each in noising], device=device)
        most = torch.tensor([each.max_loss for each in noising], device=device)
        step = max(1, MOST_GRADIENTS // (self.num * self.size))
        for first in range(0, longest, step):
            part = torch.from_numpy(rows[:, first : first + step]).to(device)
            there = torch.from_numpy(is_there[:, first : first + step]).to(device)
            x, y = store.batch(part.flatten())
            x, y = x.reshape(*part.shape, *x.shape[1:]), y.view(part.shape)
            gradients, losses = self.gradients(weights, self.own, self.priors, x, y)
            factors = cut_factors(gradients, losses, clips[:, None], dims=2) * there
            for summed, gradient in zip(sums, gradients.values()):
                flat = torch.bmm(factors[:, None], finite(gradient.flatten(2)))
                summed += flat.view(summed.shape)
            totals += cut_losses(losses, factors, most[:, None]).double().sum(dim=1)
        return sums, totals.tolist()

    @torch.no_grad()
    def unload(self) -> list[Tensor]:
        """All models as vectors."""
        named = {**self.own, **self.trained}
        each = [named[name].reshape(self.num, -1) for name in self.places]
        return list(torch.cat(each, dim=1).detach())
