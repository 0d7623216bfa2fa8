"""Small federations in which SOFA-FL once fell short: `python benchmarks/odd_federations.py`.

- two odd: 18 clients alike and two whose labels are all moved by three, 50 images each;
- own slopes: regression, every client with slopes of its own around common ones, 40 samples each;
- skewed digits: the classes of scikit-learn's digits dealt out by Dirichlet 0.3 to 20 clients;
- one, three, ten: three groups of so many clients that swap labels differently, 100 images each.

Compares SOFA-FL with training alone and with FedAvg, which have the same samples, network and local
training, and prints the mean and the worst client by case, as Markdown. Seeds below 200 are for
choices.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import checkout  # noqa: F401 (first: it finds the package)
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import sofa_fl
from sofa_fl.data.datasets import load_dataset
from sofa_fl.data.federated_data import FederatedData

Array = NDArray[np.float32]
METHODS = ("sofa", "local", "fedavg")


@dataclass(frozen=True)
class Case:
    data: FederatedData
    network: Callable[[], nn.Module]
    batch_size: int
    learning_rate: float
    rounds: int = 15


def dealt(
    x: Array, y: NDArray[np.generic], client: Sequence[int], test: float, seed: int
) -> FederatedData:
    return sofa_fl.deal(sofa_fl.from_arrays(x, y), by=client, test=test, seed=seed)


def mlp(inputs: int, hidden: int, outputs: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


def relabelled(groups: Sequence[int], maps: Sequence[Sequence[int]], each: int, seed: int) -> Case:
    """MNIST at 14 × 14 pixels; a client's labels are renamed as its group does."""
    train, _ = load_dataset("mnist", None)
    rng, num = np.random.default_rng(seed), len(groups)
    rows = rng.choice(len(train.y), num * each * 6, replace=False)  # five of six are tested on
    client = np.arange(len(rows)) % num
    images = train.x[rows].reshape(-1, 14, 2, 14, 2).mean((2, 4), dtype=np.float32) / 255
    labels = np.array(maps)[np.array(groups)[client], train.y[rows]]
    data = dealt(images, labels, client.tolist(), 5 / 6, seed)
    return Case(data, mlp(196, 48, 10), 25, 2e-3)


def two_odd(seed: int) -> Case:
    groups = np.random.default_rng(seed).permutation([1] * 2 + [0] * 18).tolist()
    return relabelled(groups, [range(10), [(k + 3) % 10 for k in range(10)]], 50, seed)


def one_three_ten(seed: int) -> Case:
    groups = np.random.default_rng(seed).permutation([0] + [1] * 3 + [2] * 10).tolist()
    maps = [range(10), [1, 0, 3, 2, *range(4, 10)], [*range(4), 5, 6, 7, 8, 9, 4]]
    return relabelled(groups, maps, 100, seed)


def own_slopes(seed: int) -> Case:
    rng, num, each = np.random.default_rng(seed), 20, 240
    slopes = rng.normal(size=8) + 0.4 * rng.normal(size=(num, 8))
    client = np.repeat(np.arange(num), each)
    x = rng.normal(size=(num * each, 8)).astype(np.float32)
    y = ((x * slopes[client]).sum(axis=1) + 0.5 * rng.normal(size=len(x))).astype(np.float32)
    return Case(dealt(x, y, client.tolist(), 5 / 6, seed), mlp(8, 16, 1), 16, 5e-3)


def skewed_digits(seed: int) -> Case:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rng, num = np.random.default_rng(seed), 20
    client = rng.permutation(np.arange(len(y)) % num)  # everybody has some of everything,
    for label in range(10):  # and nine of ten samples go by the class
        rows = rng.permutation(np.flatnonzero(y == label))[len(y) // 100 :]
        client[rows] = rng.choice(num, len(rows), p=rng.dirichlet([0.3] * num))
    data = dealt((x / 16).astype(np.float32), y, client.tolist(), 0.4, seed)
    return Case(data, mlp(64, 32, 10), 16, 2e-3, rounds=12)


CASES = {
    "two odd": two_odd,
    "own slopes": own_slopes,
    "skewed digits": skewed_digits,
    "one, three, ten": one_three_ten,
}


def scores(case: Case, method: str, seed: int) -> tuple[float, float]:
    """The mean and the worst client, in %; of regression 100 R²."""
    with tempfile.TemporaryDirectory() as folder:
        config = sofa_fl.Config(
            method=method,
            seed=seed,
            rounds=case.rounds,
            warmup=25,
            engine="sequential",
            save_every=0,
            local=sofa_fl.LocalConfig(
                batches=10, batch_size=case.batch_size, learning_rate=case.learning_rate
            ),
            sharing=sofa_fl.SharingConfig(ratio=0),
            out=f"{folder}/run",
        )
        result = sofa_fl.run(config, data=case.data, network=case.network, progress=False)
    return 100 * result.mean, 100 * result.worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[400, 401, 402])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| mean / worst client | {' | '.join(METHODS)} |")
    print(f"|---|{'---:|' * len(METHODS)}")
    for name in asked.cases:
        cells = []
        for method in METHODS:
            found = [scores(CASES[name](seed), method, seed) for seed in asked.seeds]
            mean, worst = (statistics.mean(column) for column in zip(*found))
            cells.append(f"{mean:.1f} / {worst:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
