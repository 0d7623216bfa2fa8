"""Own samples to clients by an own rule, and samples put aside for scoring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData, Samples
from sofa_fl.data.own import from_arrays
from sofa_fl.data.partition import hold_out
from sofa_fl.data.preprocess import Preprocessing, fit_preprocessing
from sofa_fl.errors import DataError
from sofa_fl.seeding import rng_for

Owners = ArrayLike | Callable[[Arrays], ArrayLike]


def split(arrays: Arrays, *, test: float = 0.2, seed: int = 0) -> tuple[Arrays, Arrays]:
    """Split samples by the seed, for training and for scoring; `run(data=...)` takes the pair."""
    arrays = checked_arrays(arrays)
    rows = np.arange(len(arrays))
    train, aside = _put_aside(rows, test, seed, 0)
    if not len(train) or not len(aside):
        raise DataError(f"{len(arrays)} samples are too few to set the fraction {test} aside")
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
    """Assign samples to clients by your own rule.

    Args:
        arrays: All samples.
        by: The owner of each sample: a name or number per row, or a function of the arrays that
            returns them. Clients are numbered in the sorted order of their names, and keep their
            names.
        test: Fraction of every client's samples that is used only for scoring; at least one if
            there are two.
        holdout: Fraction of the remaining samples on which losses are compared.
        standardize: Standardize every input to mean 0 and standard deviation 1, computed on the
            training samples. Exported models do the same: they take raw rows.
        seed: The seed of every random draw.
    """
    arrays = checked_arrays(arrays)
    rows = deal_rows(by(arrays) if callable(by) else by, len(arrays), test, holdout, seed)
    train, tests = arrays.take(rows.trained), arrays.take(rows.scored)
    preprocessing = preprocessing_of(train, standardize=standardize)
    if standardize and preprocessing is not None:
        train, tests = (Arrays(preprocessing.apply(part.x), part.y) for part in (train, tests))
    return FederatedData(
        train,
        tests,
        rows.clients,
        num_outputs(arrays),
        names=rows.names,
        preprocessing=preprocessing,
    )


def preprocessing_of(train: Arrays, *, standardize: bool = False) -> Preprocessing | None:
    """How raw rows become inputs, fitted to training samples; None if they are inputs already."""
    known = train.preprocessing
    if known is None or known.shape != train.x.shape[1:]:
        return fit_preprocessing(train.x, standardize=True) if standardize else None
    return fit_preprocessing(
        train.x,
        columns=known.columns,
        standardize=standardize,
        classes=known.classes,
        target=known.target,
        unused=known.unused,
    )


@dataclass(frozen=True, slots=True)
class DealtRows:
    """Which rows are trained on and scored, in order, and which of these every client has."""

    trained: Samples
    scored: Samples
    clients: tuple[ClientData, ...]
    names: tuple[str, ...]


def deal_rows(by: ArrayLike, num_rows: int, test: float, holdout: float, seed: int) -> DealtRows:
    """Put rows aside for scoring and to compare losses on, owner by owner."""
    if not 0 <= holdout < 1:
        raise DataError(f"holdout must be at least 0 and below 1, got {holdout}")
    owners = np.asarray(by)
    if owners.shape != (num_rows,):
        raise DataError(
            f"there must be one owner for each of the {num_rows} samples, got shape {owners.shape}"
        )
    known = np.unique(owners)
    clients, trained, scored, start, end = [], [], [], 0, 0
    for client, name in enumerate(known):
        rest, aside = _put_aside(np.flatnonzero(owners == name), test, seed, client)
        if not len(rest):
            raise DataError(f"client {name} has no sample left for training; lower test={test}")
        kept, held = hold_out(np.arange(start, start + len(rest)), holdout, seed, client)
        clients.append(ClientData(kept, held, np.arange(end, end + len(aside))))
        trained.append(rest)
        scored.append(aside)
        start, end = start + len(rest), end + len(aside)
    if not end:
        raise DataError("no client has a sample for scoring; raise test")
    are_numbers = known.tolist() == list(range(len(known)))
    names = () if are_numbers else tuple(map(str, known.tolist()))
    return DealtRows(np.concatenate(trained), np.concatenate(scored), tuple(clients), names)


def num_outputs(arrays: Arrays) -> int:
    """The size of a network's last layer: a class each, or the values of a regression."""
    if arrays.y.dtype.kind != "f":
        return arrays.num_classes
    return int(arrays.y.shape[1]) if arrays.y.ndim == 2 else 1


def checked_arrays(arrays: Arrays) -> Arrays:
    """The same samples, in the types that the engines expect."""
    if not isinstance(arrays, Arrays):
        raise DataError(
            f"samples must be sofa_fl.Arrays, got {type(arrays).__name__}; create them with "
            "sofa_fl.from_arrays(x, y)"
        )
    checked = from_arrays(arrays.x, arrays.y, scale=arrays.scale, shift=arrays.shift)
    return replace(checked, preprocessing=arrays.preprocessing)


def _put_aside(rows: Samples, test: float, seed: int, client: int) -> tuple[Samples, Samples]:
    if not 0 <= test < 1:
        raise DataError(f"test must be at least 0 and below 1, got {test}")
    order = rng_for(seed, client, "own test").permutation(rows)
    cut = max(round(test * len(rows)), int(test > 0 and len(rows) > 1))
    return np.sort(order[cut:]), np.sort(order[:cut])
