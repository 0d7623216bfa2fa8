"""Own samples to clients by an own rule, and samples put aside for scoring."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from sofa_fl.data.base import Arrays, ClientData, FederatedData, Samples
from sofa_fl.data.own import from_arrays
from sofa_fl.data.partition import hold_out
from sofa_fl.errors import DataError
from sofa_fl.seeding import rng_for

Owners = ArrayLike | Callable[[Arrays], ArrayLike]


def split(arrays: Arrays, *, test: float = 0.2, seed: int = 0) -> tuple[Arrays, Arrays]:
    """Samples to train on and samples to score, drawn by the seed; `run(data=...)` takes them."""
    rows = np.arange(len(arrays))
    train, aside = _put_aside(rows, test, seed, 0)
    if not len(train) or not len(aside):
        raise DataError(f"{len(arrays)} samples are too few to put the fraction {test} aside")
    return arrays.take(train), arrays.take(aside)


def deal(
    arrays: Arrays,
    by: Owners,
    *,
    test: float = 0.2,
    holdout: float = 0.05,
    standardize: bool = False,
    seed: int = 0,
) -> FederatedData:
    """Deal samples out to clients by an own rule.

    Args:
        arrays: All samples.
        by: Who owns each sample: a name or number per row, or a function that gives them. Clients
            are numbered in the sorted order of these.
        test: Fraction of every client's samples that is only ever scored; at least one of two.
        holdout: Fraction of the rest that losses are compared on.
        standardize: Bring every input to mean 0 and standard deviation 1, as they are among the
            samples that are trained on.
        seed: Where the draws come from.
    """
    if not 0 <= holdout < 1:
        raise DataError(f"holdout must be at least 0 and below 1, got {holdout}")
    arrays = from_arrays(arrays.x, arrays.y, scale=arrays.scale, shift=arrays.shift)
    owners = np.asarray(by(arrays) if callable(by) else by)
    if owners.shape != (len(arrays),):
        raise DataError(
            f"there must be one owner per sample, {len(arrays)} in all, got shape {owners.shape}"
        )
    clients, trained, scored, start, end = [], [], [], 0, 0
    for client, name in enumerate(np.unique(owners)):
        rest, aside = _put_aside(np.flatnonzero(owners == name), test, seed, client)
        if not len(rest):
            raise DataError(f"client {name} has no sample left to train on; lower test={test}")
        kept, held = hold_out(np.arange(start, start + len(rest)), holdout, seed, client)
        clients.append(ClientData(kept, held, np.arange(end, end + len(aside))))
        trained.append(rest)
        scored.append(aside)
        start, end = start + len(rest), end + len(aside)
    if not end:
        raise DataError("no client has a sample to be scored on; raise test")
    train, tests = (arrays.take(np.concatenate(rows)) for rows in (trained, scored))
    if standardize:
        train, tests = _standard(train, tests)
    is_regression = arrays.y.dtype.kind == "f"
    outputs = (arrays.y.shape[1] if arrays.y.ndim == 2 else 1) if is_regression else None
    return FederatedData(train, tests, tuple(clients), outputs or arrays.num_classes)


def _put_aside(rows: Samples, test: float, seed: int, client: int) -> tuple[Samples, Samples]:
    if not 0 <= test < 1:
        raise DataError(f"test must be at least 0 and below 1, got {test}")
    order = rng_for(seed, client, "own test").permutation(rows)
    cut = max(round(test * len(rows)), int(test > 0 and len(rows) > 1))
    return np.sort(order[cut:]), np.sort(order[:cut])


def _standard(train: Arrays, test: Arrays) -> tuple[Arrays, Arrays]:
    x = train.x.astype(np.float64)
    mean, std = x.mean(axis=0), x.std(axis=0)
    std[std == 0] = 1.0
    first, second = (
        Arrays(((part.x - mean) / std).astype(np.float32), part.y) for part in (train, test)
    )
    return first, second
