"""Whether sketched positions give the tree of exact ones, on the paper's experiment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.loop import Experiment, Own
from sofa_fl.methods.rules.positions import coordinates, sketch_size, sketched
from sofa_fl.models.flat import Vector, inner_products
from sofa_fl.models.sketch import Sketch
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.space import Floats, Space
from sofa_fl.topology.tree import NodeId

# How many landmarks, and how many numbers for what they leave. The first are the numbers that 20
# clients get; but one landmark, so that there is something left to be sketched.
WAYS = (
    (1, sketch_size(Config().sofa.sketch, 20)),
    (10, 4096),
    *((1, size) for size in (1 << 12, 1 << 14, 1 << 17, 1 << 19)),
)


def warm_models(seed: int) -> tuple[list[Vector], Floats]:
    """The clients' models after the warm-up of the default experiment, and their samples."""
    with Experiment(Config(seed=seed), Own()) as experiment:
        fed = experiment.fed.at(0)
        start = fed.initial()
        outcomes = fed.train([fed.task(client, start) for client in fed.clients])
        size = fed.engine.num_trainable
        models = [outcome.params[:size].clone() for outcome in outcomes if outcome is not None]
        return models, np.array([fed.size(client) for client in fed.clients], dtype=np.float64)


def check_sketch(seeds: Iterable[int], file: Path) -> None:
    """Print and write down, for each seed, which ways give the exact tree."""
    config = Config()
    rows, all_same = [], True
    print("| seed |", " | ".join(f"{marks} and {size:,}" for marks, size in WAYS), "|")
    print("|---" * (1 + len(WAYS)), "|", sep="")
    for seed in seeds:
        models, samples = warm_models(seed)

        def clusters(positions: Floats, samples: Floats = samples) -> set[frozenset[NodeId]]:
            names = tuple(map(NodeId, range(len(samples))))
            space = Space(names, positions, samples, config.sofa.metric, config.sofa.linkage)
            tree = dmac(space, config.sofa.dmac)
            return {frozenset(tree.clients_of(cluster)) for cluster in tree.clusters}

        exact = coordinates(inner_products(models))
        expected = clusters(exact)
        equal, error = [], []
        for marks, size in WAYS:
            positions = sketched(models, Sketch(size, len(models[0]), seed), marks)
            equal.append(clusters(positions) == expected)
            error.append(_error(positions, exact))
        all_same &= equal[0]
        rows.append({"seed": seed, "equal": equal, "error": error})
        words = [f"{'same' if e else 'other'} ({x:.2%})" for e, x in zip(equal, error)]
        print(f"| {seed} |", " | ".join(words), "|", flush=True)
    file.write_text(json.dumps({"ways": WAYS, "rows": rows}, indent=2) + "\n")
    if not all_same:
        raise SystemExit("a sketch of the default size gives another tree")


def _error(positions: Floats, exact: Floats) -> float:
    """The largest error of a distance, as a share of it."""
    upper = np.triu_indices(len(exact), 1)
    now, then = (
        np.linalg.norm(rows[upper[0]] - rows[upper[1]], axis=1) for rows in (positions, exact)
    )
    return float(np.abs(now / then - 1).max())
