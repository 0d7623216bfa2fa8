"""FedAvg with this package's own pieces: federation, method, and the engine of worker processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from job import BATCH_SIZE, BATCHES, LEARNING_RATE, WEIGHT_DECAY, Clock, arguments

from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData
from sofa_fl.engine.base import Exam, LocalConfig
from sofa_fl.engine.select import make_engine
from sofa_fl.federation import Federation
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.method import View
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import network_factory
from sofa_fl.sharing import SharingConfig

NOBODY = np.empty(0, dtype=np.int64)


def load(path: Path) -> FederatedData:
    """The same rows for the same clients as everybody gets."""
    with np.load(path) as file:
        scale, shift = float(file["scale"]), float(file["shift"])
        parts = np.split(file["rows"], np.cumsum(file["sizes"])[:-1])
        tests = np.array_split(np.arange(len(file["test_y"]), dtype=np.int64), len(parts))
        return FederatedData(
            Arrays(file["x"], file["y"], scale, shift),
            Arrays(file["test_x"], file["test_y"], scale, shift),
            tuple(ClientData(rows, NOBODY, test) for rows, test in zip(parts, tests)),
            num_outputs=10,
        )


def accuracy(view: View, fed: Federation) -> float:
    """The global model on the whole test set."""
    everything = np.arange(len(fed.data.test), dtype=np.int64)
    (score,) = fed.engine.evaluate([Exam(view.models[view.tree.root], everything, "test")])
    return score.accuracy


def main() -> None:
    options = arguments()
    data = load(options.data)
    local = LocalConfig(
        batches=BATCHES,
        batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        prior=False,
    )
    shape = tuple(data.train.x.shape[1:])
    engine = make_engine("workers", network_factory(ModelConfig(), shape, 10), data, local)
    fed = Federation(data, engine, local, warmup=BATCHES)
    method = FedAvg(SharingConfig(ratio=0.0))
    clock = Clock()
    state, _ = method.init(fed)  # FedAvg's warm-up is a first round
    clock.done(accuracy(method.view(state), fed))
    for round in range(1, options.rounds):
        state, _ = method.round(state, fed.at(round))
        clock.done(accuracy(method.view(state), fed))
    engine.close()


if __name__ == "__main__":
    main()
