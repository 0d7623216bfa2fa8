"""One network, trained and evaluated on one device: what every engine runs, once or many times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sofa_fl.data.federated_data import Arrays, Samples, SplitName
from sofa_fl.engine.base import Exam, LocalConfig, Outcome, Prior, Pull, Score, Task, batch_order
from sofa_fl.engine.draws import Draws, Rewriting
from sofa_fl.engine.exams import Sums
from sofa_fl.engine.fit import DRAWN, SAMPLES, draws_backwards, habits_of
from sofa_fl.errors import ModelError
from sofa_fl.models.flat import Model, Vector, as_vector, on_device, reading
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import NetworkFactory, build, naming, seeded

LossFunction = Callable[[Tensor, Tensor], Tensor]  # the mean over the samples of a batch
EachLoss = Callable[[Tensor, Tensor], Tensor]  # of every sample of a batch
EVALUATION_BATCH = 100  # measured: larger batches fall out of the cache on a CPU


class Store:
    """The samples of one split as tensors on a device, scaled when a batch is read.

    Images lie channels last, and their batches say so even with one channel, where both layouts
    are the same bytes: convolutions and pooling go by what a tensor says.
    """

    def __init__(self, arrays: Arrays, device: str | torch.device = "cpu") -> None:
        self.are_images = arrays.x.ndim == 4
        x = np.moveaxis(arrays.x, 1, -1) if self.are_images else arrays.x
        # Viewed anew: with one channel an array's strides may be anything, and torch goes by them.
        self.x = reading(np.ascontiguousarray(x).reshape(-1)).view(x.shape).to(device)
        self.y = reading(np.ascontiguousarray(arrays.y)).to(device)
        self.scale, self.shift = arrays.scale, arrays.shift

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        x = self.x[rows].to(torch.float32)
        if self.scale != 1.0 or self.shift != 0.0:
            x = x.mul_(self.scale).add_(self.shift)
        return x.permute(0, 3, 1, 2) if self.are_images else x, self.y[rows]


class Learner:
    """Trains and scores one model after the other in the same memory."""

    def __init__(
        self,
        factory: NetworkFactory,
        stores: dict[SplitName, Store],
        local: LocalConfig,
        device: str | torch.device = "cpu",
    ) -> None:
        self.factory, self.stores, self.local = factory, stores, local
        self.device = torch.device(device)
        if self.device.type == "cuda":  # float32 is float32: convolutions would else be tf32
            torch.backends.cudnn.allow_tf32 = local.precision == "tf32"
            torch.set_float32_matmul_precision("high" if local.precision == "tf32" else "highest")
        self.flat = FlatNetwork(build(factory, 0), device)
        self.network = self.flat.network
        self.is_classifier = not stores["train"].y.is_floating_point()
        self.loss: LossFunction = nn.CrossEntropyLoss() if self.is_classifier else _mean_square
        self.check_fit()

    def check_fit(self) -> None:
        """Raise if the network cannot be trained on the data or does not fit the targets."""
        x, y = self.stores["train"].batch(torch.arange(min(2, len(self.stores["train"].y))))
        self.habits = self.flat.home.trying(lambda: habits_of(self.flat, x))
        self.draws_backwards: bool | None = None  # not known until something is trained
        self.num_outputs = num_outputs = self.habits.num_outputs
        top = int(max(store.y.max() for store in self.stores.values())) if self.is_classifier else 0
        if self.is_classifier and num_outputs <= top:
            raise ModelError(
                f"the network has {num_outputs} outputs, but the labels go up to {top}; "
                f"it needs at least {top + 1}"
            )
        if not self.is_classifier and num_outputs != y[:1].numel():
            raise ModelError(f"{num_outputs} outputs do not fit {y[:1].numel()} target values")

    def try_training(self, x: Tensor) -> None:
        """See once what the network does in training; raise if it cannot be trained."""
        if self.draws_backwards is None:
            some, num = x[:SAMPLES], self.num_outputs
            tried = self.flat.home.trying(lambda: draws_backwards(self.flat, some, num))
            self.draws_backwards = tried

    def initial(self, seed: int) -> Vector:
        return FlatNetwork(build(self.factory, seed)).vector.to(self.device)

    def train(self, task: Task, max_loss: float | None = None) -> Outcome:
        """Minimize loss plus pulls, one optimizer step per batch.

        The losses that it returns count each sample up to `max_loss`, if there is one.
        """
        order = batch_order(len(task.samples), task.batches, self.local.batch_size, task.seed)
        rows = torch.from_numpy(task.samples[order]).to(self.device)
        span = self.flat.span(task.part)
        start, weights = as_vector(task.start), self.flat.weights[span]
        self.try_training(self.stores["train"].batch(rows[0])[0])
        self.flat.load(start)
        self.network.train()
        decay, constant = pull_terms(task.pulls, start[: self.flat.num_trainable])
        constants = self.flat.pieces(constant)[span] if task.pulls else []
        optimizer = optimizer_for(weights, self.local, decay, task.learning_rate)
        prior = self.offsets([task.prior])[0]
        losses = torch.empty(task.batches, device=self.device)
        in_bf16 = self.local.precision == "bf16"
        seed = torch.tensor(task.seed, device=self.device)
        # What draws in a way that is not ours draws from global generators: seed them too.
        what = f"the network failed in training{' in bf16' if in_bf16 else ''}"
        with self.flat.home(), seeded(task.seed, self.device), naming(what):
            for step, batch in enumerate(rows):
                x, y = self.stores["train"].batch(batch)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=in_bf16):
                    out = self.forward(x, Draws.at(seed, step))
                out = out.float() + prior
                loss = self.loss(out, y)
                # Made anew by every pass: cheaper than to be zeroed and summed up.
                self.network.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                gradients = [gradient_of(weight) for weight in weights]
                for gradient, pulled in zip(gradients, constants):
                    gradient += pulled
                optimizer.step()
                losses[step] = loss.detach()
                if max_loss is not None:
                    losses[step] = self._summed_loss(out.detach(), y, max_loss) / len(out)
        self.network.zero_grad(set_to_none=True)
        return Outcome(self.flat.vector, losses.cpu().numpy())

    def forward(self, x: Tensor, draws: Draws) -> Tensor:
        """The network's outputs in training, with these draws.

        What is computed again in the backward pass must draw the same again, which checkpoints
        make sure of by torch's own generators.
        """
        with nullcontext() if self.draws_backwards else Rewriting(DRAWN, draws):
            out: Tensor = self.network(x)
        return out

    def _forward(self, store: Store, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and targets of a batch, which depend on no other: draws begin anew with it."""
        x, y = store.batch(rows)
        self.flat.kept.restore()
        with self.flat.home(), naming("the network failed in evaluation"):
            if not self.habits.draws_when_scored:
                return self.network(x), y
            draws = Draws.at(torch.zeros((), dtype=torch.int64, device=self.device), 0)
            with seeded(0, self.device), Rewriting(DRAWN, draws):
                return self.network(x), y

    def evaluate(self, exam: Exam) -> Score:
        (sums,) = self.sums(exam.params, [exam.samples], exam.split, [exam.prior], exam.max_loss)
        return self.score(exam, sums)

    @torch.no_grad()
    def sums(
        self,
        model: Model,
        sets: Sequence[Samples],
        split: SplitName,
        priors: Sequence[Prior | None],
        max_loss: float | None = None,
    ) -> list[Sums]:
        """Loss and hits of a model, summed over every batch of every set of samples."""
        self.flat.load(as_vector(model))
        self.network.eval()
        found = []
        for samples, offset in zip(sets, self.offsets(priors)):
            rows = torch.from_numpy(samples).to(self.device)
            batches = torch.split(rows, EVALUATION_BATCH) if len(rows) else ()
            sums = torch.zeros(len(batches), 2, device=self.device, dtype=torch.float64)
            for row, batch in zip(sums, batches):
                out, y = self._forward(self.stores[split], batch)
                out = out + offset
                row[0] = self._summed_loss(out, y, max_loss)
                if self.is_classifier:
                    row[1] = (out.argmax(dim=1) == y).sum()
            found.append(sums.cpu().numpy())
        return found

    def _summed_loss(self, out: Tensor, y: Tensor, max_loss: float | None) -> Tensor:
        if max_loss is None:
            return self.loss(out, y).double() * len(out)
        each = each_cross_entropy if self.is_classifier else each_square
        return cut(each(out, y), max_loss).double().sum()

    def offsets(self, priors: Sequence[Prior | None]) -> Tensor:
        """A row to add to the outputs for each prior; outputs that it does not name get nothing."""
        rows = np.zeros((len(priors), self.num_outputs), dtype=np.float32)
        for row, prior in zip(rows, priors):
            if prior is not None:
                row[: len(prior)] = prior
        return on_device(rows, self.device)

    def score(self, exam: Exam, sums: Sums) -> Score:
        """Mean loss and accuracy; for regression, accuracy is the share of variance explained.

        Of targets that do not vary, there is no such share: it is NaN.
        """
        n = len(exam.samples)
        if not n:
            return Score(float("nan"), float("nan"), 0)
        last = sums[0] if len(sums) == 1 else sums.cumsum(axis=0)[-1]  # one by one
        loss, right = last.tolist()
        if not self.is_classifier:
            spread = self.variance(exam)
            right = n - loss / spread if spread else float("nan")
        return Score(loss / n, right / n, n)

    def variance(self, exam: Exam) -> float:
        """Of the targets: the loss if their mean were the answer. 0 if all are equal."""
        targets = self.stores[exam.split].y[torch.from_numpy(exam.samples).to(self.device)]
        if bool((targets == targets[:1]).all()):
            return 0.0
        return float(targets.double().var(dim=0, correction=0).mean())

    @torch.no_grad()
    def embed(self, model: Vector, samples: Samples) -> NDArray[np.float64]:
        """Mean over `samples` of what the network's last linear layer is given."""
        linear = [m for m in self.network.modules() if isinstance(m, nn.Linear)]
        if not linear:
            raise ModelError(
                "latent positions need a network with a linear layer; use sofa.position=weights"
            )
        caught: list[Tensor] = []
        hook = linear[-1].register_forward_pre_hook(lambda _m, inputs: caught.append(inputs[0]))
        try:
            self.flat.load(model)
            self.network.eval()
            self._forward(self.stores["train"], torch.from_numpy(samples).to(self.device))
        finally:
            hook.remove()
        return caught[0].double().mean(dim=0).cpu().numpy()


def optimizer_for(
    weights: Sequence[Tensor],
    local: LocalConfig,
    decay: float = 0.0,
    learning_rate: float | None = None,
) -> torch.optim.Optimizer:
    """The configured optimizer, with `decay` on top of its own; on a GPU it can be captured."""
    rate = local.learning_rate if learning_rate is None else learning_rate
    decay = local.weight_decay + decay
    if local.optimizer == "adam":
        on_gpu = weights[0].is_cuda
        return torch.optim.Adam(weights, lr=rate, weight_decay=decay, fused=True, capturable=on_gpu)
    return torch.optim.SGD(
        weights, lr=rate, momentum=local.momentum, weight_decay=decay, fused=True
    )


def gradient_of(weight: Tensor) -> Tensor:
    """Dense; zero for a weight that is not in use: it decays and is pulled all the same."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    elif weight.grad.is_sparse:
        weight.grad = weight.grad.to_dense()
    return weight.grad


def pull_terms(pulls: Sequence[Pull], like: Tensor) -> tuple[float, Tensor]:
    """The pulls' gradient, Σ 2 · weight · (x − target), as a weight decay and a constant.

    So pulls cost next to nothing: the optimizer does the first, and the second is one addition.
    """
    constant = torch.zeros_like(like)
    for pull in pulls:
        constant.sub_(pull.target[: len(like)], alpha=2 * pull.weight)
    return pull_decay(pulls), constant


def pull_decay(pulls: Sequence[Pull]) -> float:
    """The weight decay of `pull_terms`."""
    return max(0.0, sum(2 * pull.weight for pull in pulls))


def _mean_square(out: Tensor, y: Tensor) -> Tensor:
    return nn.functional.mse_loss(out, y.reshape(out.shape))


def cut(losses: Tensor, most: float | Tensor) -> Tensor:
    """Losses up to `most`, which is also the loss of what is not a number."""
    return torch.where(losses.isnan(), most, losses).clamp(max=most)


def each_cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(out, y, reduction="none")


def each_square(out: Tensor, y: Tensor) -> Tensor:
    return nn.functional.mse_loss(out, y.reshape(out.shape), reduction="none").mean(dim=1)
