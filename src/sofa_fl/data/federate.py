"""From a configuration to a federation's data: load, subsample, deal out, hold out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from sofa_fl.data import groups, partition
from sofa_fl.data.concepts import Script, perform
from sofa_fl.data.config import DataConfig
from sofa_fl.data.csv_clients import CSV, csv_clients
from sofa_fl.data.datasets import given_folders, load_dataset
from sofa_fl.data.dealing import checked_arrays, preprocessing_of
from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData, Truth
from sofa_fl.data.natural.federations import NATURAL, natural_config
from sofa_fl.data.natural.natural_records import natural_federation
from sofa_fl.data.scenarios import check_playable, script_of
from sofa_fl.errors import DataError
from sofa_fl.seeding import rng_for


def dealt_out(
    config: DataConfig, seed: int, data: FederatedData | tuple[Arrays, Arrays] | None
) -> FederatedData:
    """The data of a run: own ones that are dealt out already, or those that `federate` gives."""
    if data is None and config.name == CSV:
        data = csv_clients(config, seed)
    if not isinstance(data, FederatedData):
        _check_pair(data)
        return federate(config, seed, data)
    if config.scenario.name != "none":
        raise DataError(
            f"data.scenario.name={config.scenario.name} needs data that the configuration assigns "
            "to clients, but these are assigned already; give them stages instead, or set it to "
            "none"
        )
    return data


def _check_pair(data: object) -> None:
    """Raise unless these are training and test samples, or nothing."""
    if data is None:
        return
    kinds = [type(part).__name__ for part in data] if isinstance(data, tuple | list) else []
    if kinds != ["Arrays", "Arrays"]:
        got = f"({', '.join(kinds)})" if kinds else type(data).__name__
        raise DataError(
            f"data must be a FederatedData or a pair of Arrays (training, test), got {got}; create "
            "Arrays with sofa_fl.from_arrays(x, y), and a pair of them with sofa_fl.split"
        )


def federate(
    config: DataConfig,
    seed: int,
    arrays: tuple[Arrays, Arrays] | None = None,
    script: Script | None = None,
) -> FederatedData:
    """Assign the samples of a dataset to clients, as the configuration specifies.

    `arrays` (training, test) replaces the dataset that `config` names, and `script` replaces its
    scenario and its number of clients. Every draw depends on `seed`.
    """
    data = _federate(config, seed, arrays, script)
    if data.train.preprocessing is None:
        return data
    return replace(data, preprocessing=preprocessing_of(data.train))


def _federate(
    config: DataConfig,
    seed: int,
    arrays: tuple[Arrays, Arrays] | None,
    script: Script | None,
) -> FederatedData:
    folder = None if config.dir is None else Path(config.dir)
    if arrays is None and script is None and config.name in NATURAL:
        records = NATURAL[config.name].read(tuple(given_folders(folder)))
        return natural_federation(records, natural_config(config), seed)
    if arrays is None:
        train, test = load_dataset(config.name, folder)
    else:
        train, test = map(checked_arrays, arrays)
    _check_alike(train, test)
    # Before subsampling: the size of a network must not hang on which samples were drawn.
    num_outputs = _num_outputs(train, test)
    if config.score_on == "validation":
        train, test = _put_aside(train, seed)
    train = _subsample(train, config.num_train, seed, "num_train")
    test = _subsample(test, config.num_test, seed, "num_test")
    if config.scenario.name != "none" and script is None:
        script = _script(config, train, num_outputs, seed)
    num_clients = config.num_clients
    if script is not None:
        num_clients = 1 + max((c for phase in script for c in phase.concepts), default=0)
    parts = _deal(replace(config, num_clients=num_clients), train, test, seed)
    parts = parts._replace(
        train=[
            partition.at_most(rows, config.samples, seed, client)
            for client, rows in enumerate(parts.train)
        ]
    )
    if script is not None:
        return perform(
            script,
            train,
            test,
            parts,
            num_outputs=num_outputs,
            holdout=config.holdout,
            seed=seed,
        )
    train, test, truth = _form(config, train, test, parts, seed)
    clients = tuple(
        ClientData(*partition.hold_out(rows, config.holdout, seed, client), test_rows)
        for client, (rows, test_rows) in enumerate(zip(parts.train, parts.test))
    )
    return FederatedData(train, test, clients, num_outputs, truth)


def _form(
    config: DataConfig, train: Arrays, test: Arrays, parts: partition.Parts, seed: int
) -> tuple[Arrays, Arrays, Truth]:
    """What the groups of clients see, where the partition has groups."""
    match config.partition:
        case "groups":
            return groups.form_groups(
                train,
                test,
                parts,
                num_rotations=config.num_rotations,
                num_swaps=config.num_swaps,
                seed=seed,
            )
        case "odd":
            return groups.form_odd(train, test, parts, seed=seed)
        case "sites":
            return groups.form_sites(
                train, test, parts, num_regions=config.num_regions, num_sites=config.num_sites
            )
        case _:
            return train, test, ()


def _script(config: DataConfig, train: Arrays, num_classes: int, seed: int) -> Script:
    """That of the scenario, among as many groups as the configuration has."""
    rotations, swaps = config.num_rotations, config.num_swaps
    check_playable(
        config.scenario.name,
        rotations,
        swaps,
        shape=train.x.shape[1:],
        has_classes=train.y.dtype.kind != "f",
    )
    concepts = groups.group_concepts(
        num_classes, num_rotations=rotations, num_swaps=swaps, seed=seed
    )
    of = groups.client_groups(config.num_clients, rotations, swaps).tolist()
    return script_of(config.scenario, of, concepts, seed)


def _deal(config: DataConfig, train: Arrays, test: Arrays, seed: int) -> partition.Parts:
    match config.partition:
        case "dirichlet":
            return partition.dirichlet(
                train.y,
                test.y,
                num_clients=config.num_clients,
                alpha=config.alpha,
                min_samples=config.min_samples,
                seed=seed,
            )
        case "shards":
            return partition.shards(
                train.y,
                test.y,
                num_clients=config.num_clients,
                shards_per_client=config.shards_per_client,
                min_samples=config.min_samples,
                seed=seed,
            )
        case "iid" | "groups" | "odd" | "sites":
            return partition.iid(
                len(train),
                len(test),
                num_clients=config.num_clients,
                min_samples=config.min_samples,
                seed=seed,
            )
        case "natural":
            raise DataError(
                f"data.partition=natural is for data with natural clients, and {config.name} has "
                "none; set another partition"
            )
        case "own":
            raise DataError(
                "data.partition=own means that Python code passes data already assigned to "
                "clients; pass data=..., or set another partition"
            )


def _check_alike(train: Arrays, test: Arrays) -> None:
    def look(arrays: Arrays) -> tuple[object, ...]:
        return arrays.x.shape[1:], arrays.y.shape[1:], arrays.y.dtype.name

    if look(train) != look(test):
        raise DataError(
            "training and test samples must have the same shapes and kind of targets (input, "
            f"target, type), got {look(train)} and {look(test)}"
        )


def _num_outputs(train: Arrays, test: Arrays) -> int:
    if train.y.dtype.kind == "f":
        return int(train.y.shape[1]) if train.y.ndim == 2 else 1
    return max(train.num_classes, test.num_classes)


def _put_aside(train: Arrays, seed: int) -> tuple[Arrays, Arrays]:
    """All training samples but a sixth, and that sixth."""
    order = rng_for(seed, "validation").permutation(len(train))
    cut = max(1, len(order) // 6)
    return train.take(np.sort(order[cut:])), train.take(np.sort(order[:cut]))


def _subsample(arrays: Arrays, number: int | None, seed: int, key: str) -> Arrays:
    if number is None:
        return arrays
    if not 1 <= number <= len(arrays):
        raise DataError(
            f"data.{key} must be between 1 and the {len(arrays)} available samples, got {number}"
        )
    rows = np.sort(rng_for(seed, "subsample", key).permutation(len(arrays))[:number])
    return arrays.take(rows)
