"""Small federations outside of the tables: `python benchmarks/odd_federations.py`.

SOFA-FL's rules were chosen on these, with other seeds.

- two odd: 18 clients alike and two whose labels are all moved by three, 50 images each;
- own slopes: regression, every client with slopes of its own around common ones, 40 samples each;
- skewed digits: the classes of scikit-learn's digits dealt out by Dirichlet 0.3 to 20 clients;
- one, three, ten: three groups of so many clients that swap labels differently, 100 images each;
- alike: 20 clients with 30 images each that differ by chance only;
- alike, digits: 15 clients with 60 of scikit-learn's digits each, logistic regression;
- own planes: 15 clients with classes divided by planes that have nothing in common;
- pairs: eight orders of the labels with two clients each, 60 images each;
- skewed images: as skewed digits, with Dirichlet 0.1 and 100 images per client on average;
- two halves: two groups of eight that swap labels, 40 images each;
- nested slopes: three groups of slopes, and small differences within a group;
- uneven: three groups, clients with 12 to 400 images;
- shifted tumours: scikit-learn's breast cancer, features scaled and shifted by site;
- weak slopes: as own slopes, with small differences.

Compares SOFA-FL with five methods that have the same samples, network and local training, and
prints the mean and the worst client by case, as Markdown. Seeds below 200 are for choices.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import sofa_fl
from sofa_fl.data.datasets import load_dataset
from sofa_fl.data.federated_data import FederatedData

Array = NDArray[np.float32]
METHODS = ("sofa", "local", "fedavg", "fedavg_ft", "feddrift", "fl_hc")


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


def logistic(inputs: int, outputs: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))


def small(images: NDArray[np.uint8]) -> Array:
    """MNIST at 14 × 14 pixels."""
    pixels: Array = images.reshape(-1, 14, 2, 14, 2).mean((2, 4), dtype=np.float32)
    return pixels / np.float32(255)


def relabelled(groups: Sequence[int], maps: Sequence[Sequence[int]], each: int, seed: int) -> Case:
    """Small images; a client's labels are renamed as its group does."""
    train, _ = load_dataset("mnist", None)
    rng, num = np.random.default_rng(seed), len(groups)
    rows = rng.choice(len(train.y), num * each * 6, replace=False)  # five of six are tested on
    client = np.arange(len(rows)) % num
    labels = np.array(maps)[np.array(groups)[client], train.y[rows]]
    data = dealt(small(train.x[rows]), labels, client.tolist(), 5 / 6, seed)
    return Case(data, mlp(196, 48, 10), 25, 2e-3)


def two_odd(seed: int) -> Case:
    groups = np.random.default_rng(seed).permutation([1] * 2 + [0] * 18).tolist()
    return relabelled(groups, [range(10), [(k + 3) % 10 for k in range(10)]], 50, seed)


def one_three_ten(seed: int) -> Case:
    groups = np.random.default_rng(seed).permutation([0] + [1] * 3 + [2] * 10).tolist()
    maps = [range(10), [1, 0, 3, 2, *range(4, 10)], [*range(4), 5, 6, 7, 8, 9, 4]]
    return relabelled(groups, maps, 100, seed)


def alike(seed: int) -> Case:
    return relabelled([0] * 20, [range(10)], 30, seed)


def pairs(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    maps = [rng.permutation(10).tolist() for _ in range(8)]
    return relabelled(rng.permutation(np.repeat(np.arange(8), 2)).tolist(), maps, 60, seed)


def two_halves(seed: int) -> Case:
    groups = np.random.default_rng(seed).permutation([0] * 8 + [1] * 8).tolist()
    return relabelled(groups, [range(10), [1, 0, 3, 2, 5, 4, 7, 6, 9, 8]], 40, seed)


def uneven(seed: int) -> Case:
    train, _ = load_dataset("mnist", None)
    rng, num = np.random.default_rng(seed), 18
    sizes = np.round(12 * (400 / 12) ** (np.arange(num) / (num - 1))).astype(int)
    rng.shuffle(sizes)
    client = np.repeat(np.arange(num), sizes * 4)
    rows = rng.choice(len(train.y), len(client), replace=False)
    classes = np.arange(10)
    maps = np.array([classes, (classes + 5) % 10, [*range(5), 9, 8, 7, 6, 5]])
    labels = maps[client % 3, train.y[rows]]
    data = dealt(small(train.x[rows]), labels, client.tolist(), 3 / 4, seed)
    return Case(data, mlp(196, 48, 10), 25, 2e-3)


def regression(slopes: NDArray[np.float64], each: int, noise: float, seed: int) -> Case:
    """A client's targets are its slopes times its inputs, and noise; five of six are tested on."""
    rng, (num, inputs) = np.random.default_rng([seed, 1]), slopes.shape
    client = np.repeat(np.arange(num), 6 * each)
    x = rng.normal(size=(len(client), inputs)).astype(np.float32)
    y = ((x * slopes[client]).sum(axis=1) + noise * rng.normal(size=len(x))).astype(np.float32)
    return Case(dealt(x, y, client.tolist(), 5 / 6, seed), mlp(inputs, 16, 1), 16, 5e-3)


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


def weak_slopes(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    return regression(rng.normal(size=8) + 0.1 * rng.normal(size=(20, 8)), 30, 0.7, seed)


def nested_slopes(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    groups = rng.normal(size=8) + 0.8 * rng.normal(size=(3, 8))
    slopes = groups[np.arange(24) % 3] + 0.15 * rng.normal(size=(24, 8))
    return regression(slopes, 40, 0.5, seed)


def own_planes(seed: int) -> Case:
    rng, num, each = np.random.default_rng(seed), 15, 400
    normals, client = rng.normal(size=(num, 10)), np.repeat(np.arange(num), each)
    x = rng.normal(size=(num * each, 10)).astype(np.float32)
    y = (x * normals[client]).sum(axis=1) + 0.3 * rng.normal(size=len(x)) > 0
    data = dealt(x, y.astype(int), client.tolist(), 3 / 4, seed)
    return Case(data, mlp(10, 16, 2), 20, 5e-3, rounds=12)


def alike_digits(seed: int) -> Case:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    client = np.random.default_rng(seed).permutation(np.arange(len(y)) % 15)
    data = dealt((x / 16).astype(np.float32), y, client.tolist(), 1 / 2, seed)
    return Case(data, logistic(64, 10), 16, 5e-3, rounds=12)


def skewed_images(seed: int) -> Case:
    train, _ = load_dataset("mnist", None)
    rng, num = np.random.default_rng(seed), 20
    rows = rng.choice(len(train.y), 12_000, replace=False)
    y = train.y[rows].astype(int)
    client = rng.permutation(np.arange(len(y)) % num)
    for label in range(10):
        most = rng.permutation(np.flatnonzero(y == label))[len(y) // 200 :]
        client[most] = rng.choice(num, len(most), p=rng.dirichlet([0.1] * num))
    data = dealt(small(train.x[rows]), y, client.tolist(), 5 / 6, seed)
    return Case(data, mlp(196, 48, 10), 25, 2e-3)


def shifted_tumours(seed: int) -> Case:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    rng, num = np.random.default_rng(seed), 10
    x = (x - x.mean(0)) / x.std(0)
    client = rng.permutation(np.arange(len(y)) % num)
    scale = 1 + 0.5 * rng.normal(size=(num, 1))
    x = x * scale[client] + 0.7 * rng.normal(size=(num, x.shape[1]))[client]
    data = dealt(x.astype(np.float32), y, client.tolist(), 0.4, seed)
    return Case(data, logistic(30, 2), 8, 5e-3, rounds=12)


CASES = {
    "two odd": two_odd,
    "own slopes": own_slopes,
    "skewed digits": skewed_digits,
    "one, three, ten": one_three_ten,
    "alike": alike,
    "alike, digits": alike_digits,
    "own planes": own_planes,
    "pairs": pairs,
    "skewed images": skewed_images,
    "two halves": two_halves,
    "nested slopes": nested_slopes,
    "uneven": uneven,
    "shifted tumours": shifted_tumours,
    "weak slopes": weak_slopes,
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
