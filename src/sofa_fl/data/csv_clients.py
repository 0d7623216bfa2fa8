"""A federation in CSV files, as a configuration describes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federated_data import ClientData, FederatedData
from sofa_fl.data.tables import read_federation
from sofa_fl.errors import DataError
from sofa_fl.seeding import rng_for

CSV = "csv"  # the name of data in CSV files


def csv_clients(config: DataConfig, seed: int) -> FederatedData:
    """The federation in the CSV files of a folder, or of one file."""
    if config.dir is None:
        raise DataError("data.name=csv needs data.dir, a folder of CSV files or one such file")
    for key in ("num_train", "num_test"):
        if getattr(config, key) is not None:
            raise DataError(
                f"data.{key} applies only to data that the configuration assigns to clients; with "
                "CSV files, unset it"
            )
    data = read_federation(config.dir, config.csv, holdout=config.holdout, seed=seed)
    return validation_of(data, seed) if config.score_on == "validation" else data


def validation_of(data: FederatedData, seed: int) -> FederatedData:
    """Data whose test samples are a sixth of every client's training samples, put aside."""
    clients, tests, end = [], [], 0
    for number, client in enumerate(data.clients):
        order = rng_for(seed, number, "validation").permutation(client.train)
        cut = len(order) // 6
        tests.append(np.sort(order[:cut]))
        rows = np.arange(end, end + cut)
        clients.append(ClientData(np.sort(order[cut:]), client.holdout, rows))
        end += cut
    test = data.train.take(np.concatenate(tests))
    return replace(data, test=test, clients=tuple(clients))
