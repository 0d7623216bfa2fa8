"""Whether a stack does what its networks do alone: tried on two of them, not argued."""

from __future__ import annotations

import torch
from torch import Tensor

from sofa_fl.engine.draws import Draws
from sofa_fl.engine.learner import Learner
from sofa_fl.engine.mapping import apart
from sofa_fl.engine.stack import MakeStack
from sofa_fl.models.flat import Vector

SAMPLES = 8
SEEDS = (1, 2)
Seen = dict[str, Tensor]  # what one network did, by what it is called in a sentence


def difference(learner: Learner, make: MakeStack) -> str | None:
    """What is wrong with a stack of two networks, as the end of a sentence, or None."""
    store = learner.stores["train"]
    rows = torch.arange(SAMPLES, device=learner.device) % len(store.y)
    x, _ = store.batch(rows)
    vectors = [learner.initial(seed) for seed in SEEDS]
    try:
        together = _together(learner, make, vectors, x)
    except torch.cuda.OutOfMemoryError:
        return "they do not fit into the GPU's memory"
    except Exception as error:  # whatever a network's own code may raise when it is mapped
        said = str(error).strip().splitlines()
        return f"torch says '{said[0] if said else type(error).__name__}'"
    alone = [_alone(learner, vector, x, seed) for vector, seed in zip(vectors, SEEDS)]
    tolerance = 5e-2 if learner.local.precision == "tf32" else 1e-2
    for mine, same in zip(together, alone):
        for what, expected in same.items():
            # A state that was not moved far has the rounding errors of its inputs.
            allowed = tolerance * float(expected.norm()) + 1e-5 * expected.numel() ** 0.5
            if not float((mine[what] - expected).norm()) <= allowed:
                return f"they have other {what}"
    return None


@torch.no_grad()
def mixes_samples(learner: Learner) -> bool:
    """Whether what a network says of a sample depends on those that it is evaluated with."""
    store = learner.stores["train"]
    rows = torch.arange(SAMPLES, device=learner.device) % len(store.y)
    learner.flat.load(learner.initial(SEEDS[0]))
    learner.network.eval()
    among_others, alone = (learner.network(store.batch(r)[0])[0] for r in (rows, rows * 0))
    return not torch.allclose(among_others, alone, rtol=1e-2, atol=1e-4)


def _together(learner: Learner, make: MakeStack, vectors: list[Vector], x: Tensor) -> list[Seen]:
    stack, rows = make(learner.flat, len(vectors)), torch.stack(vectors)
    stack.load(rows, SEEDS)
    twice = torch.cat([x] * len(vectors))
    if learner.local.precision == "bf16":
        stack.forward(twice, training=True, bf16=True)
        stack.load(rows, SEEDS)
    out = apart(stack.forward(twice, training=True), len(vectors))
    loss = out.square().mean(dim=(1, 2)).sum()
    gradients = torch.autograd.grad(loss, stack.weights, materialize_grads=True, allow_unused=True)
    after = stack.unload()
    with torch.no_grad():
        scored = apart(stack.forward(twice, training=False), len(vectors))
    return [
        {
            "outputs in training": out[i].detach(),
            "gradients": torch.cat([gradient[i].flatten() for gradient in gradients]),
            "running statistics": after[i][learner.flat.num_trainable :],
            "outputs": scored[i],
        }
        for i in range(len(vectors))
    ]


def _alone(learner: Learner, vector: Vector, x: Tensor, seed: int) -> Seen:
    flat = learner.flat
    flat.load(vector)
    learner.network.train()
    out = learner.forward(x, Draws.at(torch.tensor(seed, device=learner.device), 0))
    loss = out.square().mean()
    gradients = torch.autograd.grad(loss, flat.weights, materialize_grads=True, allow_unused=True)
    after = flat.vector
    learner.network.eval()
    with torch.no_grad():
        scored = learner.network(x)
    return {
        "outputs in training": out.detach(),
        "gradients": torch.cat([gradient.flatten() for gradient in gradients]),
        "running statistics": after[flat.num_trainable :],
        "outputs": scored,
    }
