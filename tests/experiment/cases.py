"""What runs are tested on: tiny settings, and what two runs of the same must have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sofa_fl.data.federated_data import Arrays
from sofa_fl.experiment.run.config import Config, parse_config
from tests.engine.cases import images

TINY: dict[str, Any] = {
    "rounds": 3,
    "warmup": 3,
    "engine": "sequential",
    "data": {"num_clients": 5, "alpha": 0.5, "min_samples": 6},
    "model": {"name": "mlp", "hidden": 6},
    "local": {"batches": 4, "batch_size": 8},
    "sharing": {"ratio": 0.1},
    # Trees of several levels, that change: by the gaps so few clients would have a flat one.
    "sofa": {
        "dmac": {"increase": 1.05},
        "shape": {"tolerance": 0.0, "merge": 1.4, "split": 0.8},
    },
}
METHODS: dict[str, dict[str, Any]] = {
    "sofa": {},
    "sofa cascade": {"sofa": {**TINY["sofa"], "propagation": "cascade"}},
    "sofa eta 0.5": {"sofa": {**TINY["sofa"], "eta": 0.5}},
    "sofa latent": {"sofa": {**TINY["sofa"], "position": "latent"}},
    "sofa private": {"sharing": {"ratio": 0}, "privacy": {"epsilon": 4}},
    "hypcluster private": {
        "method": "hypcluster",
        "sharing": {"ratio": 0},
        "privacy": {"epsilon": 4, "scores": 3},
    },
    "sofa seldom evaluated": {"evaluate": {"every": 2, "clients": 3}},
    "fedavg": {"method": "fedavg"},
    "hypcluster": {"method": "hypcluster"},
    "cfl": {"method": "cfl", "cfl": {"stationary": 0.9, "deviation": 0.3}},
    "fl_hc": {"method": "fl_hc", "fl_hc": {"rounds": 1}},
    "hierfavg": {"method": "hierfavg"},
    "apfl": {"method": "apfl"},
    "fedrep": {"method": "fedrep"},
    "fedala": {"method": "fedala"},
    "fedrod": {"method": "fedrod"},
    "fedyogi": {"method": "fedyogi"},
    "hypcluster_restarts": {"method": "hypcluster_restarts"},
    "scaffold": {
        "method": "scaffold",
        "local": {"batches": 4, "batch_size": 8, "optimizer": "sgd", "learning_rate": 0.05},
    },
}


def own_data(seed: int = 0) -> tuple[Arrays, Arrays]:
    return images(150, seed), images(60, seed + 1)


def tiny(out: Path, **values: Any) -> Config:
    return parse_config({**TINY, **values, "out": str(out)})


def summary_of(run: Path) -> dict[str, Any]:
    """The summary, but for what may differ: how long it took, where it is, what ran it."""
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return {key: value for key, value in summary.items() if key not in ("seconds", "run", "engine")}


def events_of(run: Path) -> list[dict[str, Any]]:
    """The events, but for how long they took."""
    lines = (run / "events.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
