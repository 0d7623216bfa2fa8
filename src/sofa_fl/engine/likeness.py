"""Whether a stack does what its networks do alone: tried on two of them, not argued."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sofa_fl.engine.draws import Draws
from sofa_fl.engine.fit import python_generators
from sofa_fl.engine.learner import Learner
from sofa_fl.engine.map_clients import UndecidedError
from sofa_fl.engine.mapping import apart
from sofa_fl.engine.reasons import DRAWS, KEEPS, reason_of
from sofa_fl.engine.stack import LayerStack, MakeStack, Stack
from sofa_fl.errors import release
from sofa_fl.models.networks import seeded

SAMPLES = 8
SEEDS = (1, 2)
STEPS = 2  # what a network keeps of the first shows in the second
BITS = 2.0**-22  # relative: some bits at the end of a float32
SAME = 1e-4  # relative: outputs that should not depend on others' samples, but for rounding
Seen = dict[str, Tensor]  # what one network did, by what it is called in a sentence


class StackComparison:
    """Two networks, stacked and alone, on a few samples of their own."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self.flat, self.device = learner, learner.flat, learner.device
        self.vectors = [learner.initial(seed) for seed in SEEDS]
        self.cause = ""  # of whatever may differ in training, where it is known
        learner.try_training(self.batch(0))

    def in_training(self, make: MakeStack) -> str | None:
        """What is wrong with training a stack, as the end of a sentence, or None."""
        if self.learner.draws_backwards:
            return "a checkpoint of the network draws new random numbers in the backward pass"
        return self._difference(make, self._trained_together, self._trained_alone)

    def in_scores(self, make: MakeStack) -> str | None:
        """What is wrong with scoring samples of many models by a stack, or None."""
        return self._difference(make, self._scored_together, self._scored_alone)

    def of_batches(self) -> str | None:
        """What is wrong with scoring samples in other batches, however that is done, or None."""
        if self.learner.habits.draws_when_scored:
            return "the network draws random numbers in evaluation, too"
        if self.mixes_samples():
            return "the network's output for a sample depends on the rest of the batch"
        return None

    def _difference(
        self,
        make: MakeStack,
        together: Callable[[Stack], list[Seen]],
        alone: Callable[[int], Seen],
    ) -> str | None:
        try:
            with warnings.catch_warnings(), seeded(SEEDS[0], self.device):
                warnings.simplefilter("ignore")  # of a way that may not be taken
                found = together(make(self.flat, len(SEEDS)))
        except torch.cuda.OutOfMemoryError:
            return "stacked networks do not fit into the GPU's memory"
        except Exception as error:  # whatever a network's own code may raise when it is mapped
            trouble = reason_of(error)
            release(error)
            return trouble
        tolerance = 5e-2 if self.learner.local.precision == "tf32" else 1e-2
        for number, mine in enumerate(found):
            expected = alone(number)
            wrong = [w for w in expected if not _is_near(mine[w], expected[w], tolerance)]
            if wrong and not self._is_rounding(number, alone, mine, expected):
                return self.cause or f"stacked networks give different {wrong[0]}"
        return None

    def _is_rounding(
        self, client: int, alone: Callable[[int], Seen], mine: Seen, expected: Seen
    ) -> bool:
        """Whether a network differs as much from itself if the last bits of its weights do."""
        vector = self.vectors[client]
        self.vectors[client] = vector * (1 + BITS * torch.arange(len(vector)).cos().to(vector))
        other = alone(client)
        self.vectors[client] = vector
        return all(
            mine[what].shape == expected[what].shape
            and float((mine[what] - expected[what]).norm())
            <= 3 * float((other[what] - expected[what]).norm()) + _room(expected[what])
            for what in expected
        )

    def batch(self, number: int) -> Tensor:
        """A few samples; another number has others, if there are as many."""
        store = self.learner.stores["train"]
        rows = torch.arange(SAMPLES, device=self.device) + number * SAMPLES
        return store.batch(rows % len(store.y))[0]

    @torch.no_grad()
    def mixes_samples(self) -> bool:
        """Whether what a network says of a sample depends on those that it is evaluated with."""
        self.flat.load(self.vectors[0])
        network = self.learner.network.eval()
        x = self.batch(0)

        def first(given: Tensor) -> Tensor:
            self.flat.kept.restore()
            with self.flat.home():
                out: Tensor = network(given.clone())[0]
            return out

        expected = first(x)
        others = (x[:1].expand_as(x), x[: SAMPLES // 2])
        return not all(torch.allclose(expected, first(o), rtol=1e-2, atol=1e-4) for o in others)

    def _trained_together(self, stack: Stack) -> list[Seen]:
        rows, clients = torch.stack(self.vectors), range(len(SEEDS))
        if self.learner.local.precision == "bf16":
            stack.load(rows, SEEDS)
            stack.forward(torch.cat([self.batch(i) for i in clients]), training=True, bf16=True)
        if isinstance(stack, LayerStack):  # the clients' samples are in one batch: are they apart?
            first, other = (self._first_of(stack, rows, number) for number in (1, 2))
            if not _is_near(other, first, SAME):
                raise UndecidedError("to the network, the samples of all clients are one batch")
        stack.load(rows, SEEDS)
        outs, gradients = [], []
        for step in range(STEPS):
            x = torch.cat([self.batch(i + step) for i in clients])
            out = apart(stack.forward(x, training=True), len(SEEDS))
            with stack.home():
                gradients.append(_gradients(out.square().mean(dim=(1, 2)).sum(), stack.weights))
            outs.append(out.detach())
        after = stack.unload()
        return [
            {
                "outputs in training": torch.stack([out[i] for out in outs]),
                "gradients": torch.cat([each[i].flatten() for g in gradients for each in g]),
                "running statistics": after[i][self.flat.num_trainable :],
            }
            for i in clients
        ]

    @torch.no_grad()
    def _first_of(self, stack: Stack, rows: Tensor, number: int) -> Tensor:
        """What the first client gets if the other has samples of this number."""
        stack.load(rows, SEEDS)
        x = torch.cat([self.batch(0), self.batch(number)])
        return apart(stack.forward(x, training=True), len(rows))[0]

    def _trained_alone(self, client: int) -> Seen:
        self.flat.load(self.vectors[client])
        self.learner.network.train()
        seed = torch.tensor(SEEDS[client], device=self.device)
        outs, gradients = [], []
        with seeded(SEEDS[client], self.device):
            generators = python_generators()
            for step in range(STEPS):
                with self.flat.home():
                    out = self.learner.forward(self.batch(client + step), Draws.at(seed, step))
                    gradients.append(_gradients(out.square().mean(), self.flat.weights))
                outs.append(out.detach())
            draws = python_generators() != generators
        self.cause = DRAWS if draws else KEEPS if self.flat.kept.has_left_tensors else ""
        return {
            "outputs in training": torch.stack(outs),
            "gradients": torch.cat([each.flatten() for g in gradients for each in g]),
            "running statistics": self.flat.vector[self.flat.num_trainable :],
        }

    @torch.no_grad()
    def _scored_together(self, stack: Stack) -> list[Seen]:
        stack.load(torch.stack(self.vectors))
        x = torch.cat([self.batch(i) for i in range(len(SEEDS))])
        outs = apart(stack.forward(x, training=False), len(SEEDS))
        if stack.decided:
            raise UndecidedError("clients agree now, and may not later")
        return [{"outputs": out} for out in outs]

    @torch.no_grad()
    def _scored_alone(self, client: int) -> Seen:
        self.flat.load(self.vectors[client])
        self.learner.network.eval()
        with self.flat.home():
            return {"outputs": self.learner.network(self.batch(client))}


def _gradients(loss: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(loss, weights, materialize_grads=True, allow_unused=True)
    return [gradient.to_dense() if gradient.is_sparse else gradient for gradient in found]


def _is_near(mine: Tensor, expected: Tensor, tolerance: float) -> bool:
    if mine.shape != expected.shape:
        return False
    allowed = tolerance * float(expected.norm()) + _room(expected)
    return float((mine - expected).norm()) <= allowed


def _room(expected: Tensor) -> float:
    """A state that was not moved far has the rounding errors of its inputs."""
    return 1e-5 * float(expected.numel() ** 0.5)
