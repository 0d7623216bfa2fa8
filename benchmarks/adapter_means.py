"""How far the mean of LoRA's factors is from the mean of what adapters do, on MiniLM.

    python -m benchmarks.adapter_means FOLDER

Four vendors train for 20 batches from one start, all of one domain or each of another; FOLDER is as
`adapters_prepare.py` makes it, or has `intents.json` alone. Minutes on a CPU.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sofa_fl.engine.base import Exam, LocalConfig, Task
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.models.flat import mean
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.topology.tree import NodeId
from study.design.adapter_settings import Network
from study.intents import VENDORS, federation, find_base, network_of, read_queries

LOCAL = LocalConfig(batches=20, batch_size=16, learning_rate=5e-3)
GROUPS = {"one domain": range(4), "four domains": range(0, 4 * VENDORS, VENDORS)}
KINDS: tuple[Network, ...] = ("both factors", "one A")


def added(flat: FlatNetwork, model: Tensor) -> Tensor:
    """What the adapters of a model add to all weights."""
    flat.load(model)
    layers: list[Any] = [
        module
        for module in flat.network.modules()
        if isinstance(getattr(module, "lora_A", None), nn.ModuleDict)
    ]
    parts = [layer.get_delta_weight("default").flatten() for layer in layers]
    return torch.cat(parts).detach().clone()


def main(folder: str) -> None:
    base = find_base(folder)
    train, test = (read_queries(folder, base, split) for split in ("train", "test"))
    data = federation(train, test, seed=0)
    print("| vendors | trained | error of the mean | accuracy of the mean | of each |")
    print("|---|---|---:|---:|---:|")
    for title, vendors in GROUPS.items():
        for kind in KINDS:
            engine = SequentialEngine(network_of(base, kind, data.num_outputs), data, LOCAL)
            start, flat = engine.initial(0), engine.learner.flat
            outcomes = engine.train(
                Task(
                    site=NodeId(i), start=start, samples=data.clients[i].train,
                    batches=LOCAL.batches, seed=i,
                )
                for i in vendors
            )  # fmt: skip
            models, alike = [outcome.params for outcome in outcomes], [1.0] * len(outcomes)
            middle = mean(models, alike)
            exact = mean([added(flat, model) for model in models], alike)
            error = float((added(flat, middle) - exact).norm() / exact.norm())
            rows = [data.clients[i].test for i in vendors]
            exams = [Exam(middle, each, "test") for each in rows]
            exams += [Exam(model, each, "test") for model, each in zip(models, rows)]
            scores = [score.accuracy for score in engine.evaluate(exams)]
            shared, own = np.mean(scores[: len(rows)]), np.mean(scores[len(rows) :])
            print(f"| {title} | {kind} | {error:.2f} | {shared:.3f} | {own:.3f} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.adapter_means FOLDER")
    main(sys.argv[1])
