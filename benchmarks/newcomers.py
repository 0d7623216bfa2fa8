"""How well clients are served that no run has seen: `python benchmarks/newcomers.py rotations S4`.

A quarter of the clients is left out of a run and then assigned by `sofa_fl.assign`, with 20, 50 or
200 of their inputs, labelled or not. Scores are on validation data, with seeds that no table uses.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

import sofa_fl
from sofa_fl.data.federated_data import ClientData, FederatedData
from sofa_fl.experiment.run.config import override, parse_config
from sofa_fl.experiment.scoring.outputs import outputs_of

IMAGES: dict[str, Any] = {
    "data.num_clients": 48, "data.num_train": 9600, "data.num_test": 4800,
    "data.partition": "groups", "model.name": "mlp", "model.hidden": 64,
    "local.batches": 10, "local.batch_size": 32,
}  # fmt: skip
LANGUAGES: dict[str, Any] = {
    "data.name": "languages", "data.partition": "natural", "data.num_clients": 33,
    "data.samples": 1800, "model.name": "mlp", "model.hidden": [128, 64],
    "local.batches": 15, "local.batch_size": 30,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "rotations": {**IMAGES, "data.num_rotations": 4, "data.num_swaps": 1},
    "S4": {**IMAGES, "data.num_rotations": 4, "data.num_swaps": 2},
    "languages": LANGUAGES,  # three clients speak each
    "new-languages": {**LANGUAGES, "data.samples": 600},
}
SPEAKERS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="+", choices=SETTINGS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--inputs", type=int, nargs="+", default=[20, 50, 200])
    parser.add_argument("--method", default="sofa")
    asked = parser.parse_args()
    head = [f"{n} {what}" for what in ("inputs", "labels") for n in asked.inputs]
    print("| | seed | present | " + " | ".join(head) + " | root |")
    for name in asked.settings:
        for seed in asked.seeds:
            found = measure(name, seed, asked.inputs, asked.method)
            print(
                f"| {name} | {seed} | {' | '.join(f'{100 * x:.2f}' for x in found)} |", flush=True
            )


def measure(name: str, seed: int, numbers: list[int], method: str) -> list[float]:
    """Accuracy of those present, of newcomers by inputs, by labels, and with the root's model."""
    config = parse_config(
        override(
            {},
            {
                **SETTINGS[name],
                "method": method,
                "seed": seed,
                "rounds": 12,
                "sharing.ratio": 0.0,
                "data.score_on": "validation",
                "engine": "sequential",
                "save_every": 12,
            },
        )
    )
    data = sofa_fl.federate(config.data, seed)
    if name == "languages":
        data = dealt_again(data, SPEAKERS, seed)
    new = newcomers(len(data.clients), name, seed)
    stay = [client for number, client in enumerate(data.clients) if number not in new]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        result = sofa_fl.run(
            replace(config, out=str(run)),
            data=FederatedData(data.train, data.test, tuple(stay), data.num_outputs),
        )
        found = [float(result.summary["client"]["mean"])]
        for with_labels in (False, True):
            for number in numbers:
                found.append(served(data, new, run, number, with_labels=with_labels))
        scores = [hits(sofa_fl.predict(run, x), y) for x, y in (tests(data, c) for c in new)]
    return [*found, fmean(scores)]


def served(
    data: FederatedData, new: list[int], run: Path, number: int, *, with_labels: bool
) -> float:
    """The mean accuracy of newcomers with the models that they are given."""
    scores = []
    for client in new:
        rows = data.clients[client].train[:number]
        x, y = data.train.x[rows], data.train.y[rows]
        given = sofa_fl.assign(run, x, y if with_labels else None)
        scores.append(hits(outputs_of(given.model, tests(data, client)[0]), tests(data, client)[1]))
    return fmean(scores)


def tests(data: FederatedData, client: int) -> tuple[Any, Any]:
    rows = data.clients[client].test
    return data.test.x[rows], data.test.y[rows]


def hits(outputs: Any, y: Any) -> float:
    return float((outputs.argmax(axis=1) == y).mean())


def newcomers(num_clients: int, name: str, seed: int) -> list[int]:
    """A quarter of the clients; of languages with several speakers, one speaker each."""
    rng = np.random.default_rng(seed)
    if name == "languages":
        some = rng.permutation(num_clients // SPEAKERS)[: num_clients // 4]
        return sorted((SPEAKERS * some).tolist())
    return sorted(rng.permutation(num_clients)[: num_clients // 4].tolist())


def dealt_again(data: FederatedData, parts: int, seed: int) -> FederatedData:
    """Every client as several, with a part of its samples each."""
    rng, clients = np.random.default_rng(seed), []
    for client in data.clients:
        rows = [
            np.array_split(rng.permutation(part), parts)
            for part in (client.train, client.holdout, client.test)
        ]
        clients += [
            ClientData(*(np.sort(part[number]) for part in rows)) for number in range(parts)
        ]
    return FederatedData(data.train, data.test, tuple(clients), data.num_outputs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
