"""Samples as they were collected, and a federation of those who collected them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData, Samples, Stage, Truth
from sofa_fl.data.partition import at_most, hold_out
from sofa_fl.errors import DataError
from sofa_fl.seeding import rng_for

TEST = 0.2  # the fraction of a client's samples that is only ever scored
VALIDATION = 1 / 6  # of the other samples, where choices are made


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Who collected what.

    Attributes:
        x: Inputs, row by row.
        y: Class labels.
        owner: The client of every row.
        names: What each client is called.
        num_outputs: Number of classes.
        truth: The known hierarchy of the clients, as in `FederatedData`.
        unit: Rows of one client with the same number are all trained on or all scored. Without it,
            every row is a unit.
        period: The period of every row, from 0, for data that change over time.
        is_test: The rows that are scored, where others have fixed that; else it is drawn.
        standardize: Bring inputs to mean 0 and deviation 1, by the first period's training samples
            of all clients together, or of each client.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    owner: Samples
    names: tuple[str, ...]
    num_outputs: int
    truth: Truth = ()
    unit: Samples | None = None
    period: Samples | None = None
    is_test: NDArray[np.bool_] | None = None
    standardize: Literal["no", "all", "each"] = "no"


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of one client in one period, by what they are for."""

    period: int
    client: int
    train: Samples
    holdout: Samples
    test: Samples


def natural_federation(records: Records, config: DataConfig, seed: int) -> FederatedData:
    """The clients as they are; the seed draws which of their samples are trained on and scored.

    With the scenario `years`, the first period holds until round `at`, and each later one for
    `lasts` rounds. A client with fewer than `min_samples` training samples in a period is absent.
    """
    shares = _shares(records, config, seed)
    if missing := sorted(set(range(len(records.names))) - {share.client for share in shares}):
        raise DataError(
            f"every client must have data.min_samples={config.min_samples} training samples, but "
            f"{records.names[missing[0]]} has fewer; lower data.min_samples"
        )
    x = _standard(records, shares)
    train, train_rows = _gather(records, x, [np.concatenate([s.train, s.holdout]) for s in shares])
    test, test_rows = _gather(records, x, [s.test for s in shares])
    stages: dict[int, dict[int, ClientData]] = {}
    first: dict[int, ClientData] = {}
    for share, own, scored in zip(shares, train_rows, test_rows):
        cut = len(share.train)
        client = ClientData(own[:cut], own[cut:], scored)
        stages.setdefault(share.period, {})[share.client] = client
        first.setdefault(share.client, client)
    at, lasts = config.scenario.at, config.scenario.lasts
    changes = tuple(
        Stage(at + (period - 1) * lasts if period else 0, clients, records.truth)
        for period, clients in sorted(stages.items())
    )
    return FederatedData(
        train,
        test,
        tuple(first[client] for client in sorted(first)),
        records.num_outputs,
        records.truth,
        changes if len(changes) > 1 else (),
        names=records.names,
    )


def _shares(records: Records, config: DataConfig, seed: int) -> Sequence[Share]:
    """The rows of every client in every period, as far as it has enough of them."""
    is_moving = config.scenario.name == "years" and records.period is not None
    period = records.period if is_moving else np.zeros(len(records.y), np.int64)
    assert period is not None
    found = []
    for number in np.unique(period).tolist():
        for client in range(len(records.names)):
            rows = np.flatnonzero((records.owner == client) & (period == number))
            if records.is_test is None:
                pool, test = put_aside(records, rows, TEST, seed, client, "natural test", number)
            else:
                pool, test = rows[~records.is_test[rows]], rows[records.is_test[rows]]
            if config.score_on == "validation":
                pool, test = put_aside(
                    records, pool, VALIDATION, seed, client, "natural validation", number
                )
            if len(pool) >= config.min_samples:
                pool = at_most(pool, config.samples, seed, client)
                found.append(
                    Share(number, client, *hold_out(pool, config.holdout, seed, client), test)
                )
    return found


def put_aside(
    records: Records, rows: Samples, fraction: float, seed: int, *names: int | str
) -> tuple[Samples, Samples]:
    """Split rows into those that stay and about this fraction of them, in whole units."""
    unit = rows if records.unit is None else records.unit[rows]
    units, of = np.unique(unit, return_inverse=True)
    order = rng_for(seed, *names).permutation(len(units))
    cut = max(round(fraction * len(units)), int(len(units) > 1))
    is_aside = np.isin(of, order[:cut])
    return rows[~is_aside], rows[is_aside]


def _gather(
    records: Records, x: NDArray[Any], parts: Sequence[Samples]
) -> tuple[Arrays, list[Samples]]:
    """These rows one after the other, and where each part of them is now."""
    rows = np.concatenate(parts)
    ends = np.cumsum([len(part) for part in parts])
    return Arrays(x[rows], records.y[rows]), [
        np.arange(end - len(part), end) for part, end in zip(parts, ends)
    ]


def _standard(records: Records, shares: Sequence[Share]) -> NDArray[Any]:
    """The inputs, standardized by what is trained on first."""
    if records.standardize == "no":
        return records.x
    x = records.x.astype(np.float64)
    first: dict[int, Samples] = {}
    for share in shares:
        first.setdefault(share.client, np.concatenate([share.train, share.holdout]))
    if records.standardize == "all":
        period = shares[0].period
        known = np.concatenate([first[s.client] for s in shares if s.period == period])
        return _scaled(x, x[known])
    for client, known in first.items():
        own = records.owner == client
        x[own] = _scaled(x[own], x[known])
    return x.astype(np.float32)


def _scaled(x: NDArray[Any], known: NDArray[Any]) -> NDArray[Any]:
    mean, std = known.mean(axis=0), known.std(axis=0)
    std[std == 0] = 1.0
    return np.asarray(((x - mean) / std).astype(np.float32))
