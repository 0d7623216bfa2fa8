"""Deal samples out to clients: pure functions from labels to rows per client.

Label-based partitions are made as a table of counts (clients x classes) first; the minimum per
client and the split of the test set work on counts, and only then rows are drawn.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Samples
from sofa_fl.errors import DataError
from sofa_fl.seeding import rng_for

Counts = NDArray[np.int64]

# From here on no sample is dealt differently, and NumPy's draw overflows much further up.
LARGEST_ALPHA = 1e9


class Parts(NamedTuple):
    """Rows of the training and of the test set, client by client.

    Every row has one owner. Every client has a test row where there are as many test rows as
    clients; otherwise some clients have none.
    """

    train: list[Samples]
    test: list[Samples]


def iid(
    num_train: int, num_test: int, *, num_clients: int, min_samples: int = 1, seed: int
) -> Parts:
    """Shuffle and deal out evenly; sizes differ by one at most."""
    _check_size(num_train, num_clients, min_samples)

    def deal(num_samples: int, split: str) -> list[Samples]:
        order = rng_for(seed, "partition", "iid", split).permutation(num_samples)
        return [np.sort(part) for part in np.array_split(order, num_clients)]

    return Parts(deal(num_train, "train"), deal(num_test, "test"))


def dirichlet(
    train_y: NDArray[Any],
    test_y: NDArray[Any],
    *,
    num_clients: int,
    alpha: float,
    min_samples: int = 1,
    seed: int,
) -> Parts:
    """Deal out every class by shares drawn from Dirichlet(alpha), the test set by the same shares.

    The shares are drawn once. Clients with fewer than `min_samples` training samples then get
    random ones of the largest clients, and the test set follows the shares after that.
    """
    _check_size(len(train_y), num_clients, min_samples)
    if not (alpha > 0 and math.isfinite(alpha)):
        raise DataError(f"data.alpha must be a number above 0, got {alpha}; 1.0 is usual")
    train, test, num_classes = _classes(train_y, test_y, "dirichlet")
    rng = rng_for(seed, "partition", "dirichlet")
    concentration = np.full(num_clients, min(alpha, LARGEST_ALPHA))
    shares = rng.dirichlet(concentration, size=num_classes).T
    counts = _apportion(shares, np.bincount(train, minlength=num_classes), rng)
    return _deal(counts, train, test, min_samples, seed)


def shards(
    train_y: NDArray[Any],
    test_y: NDArray[Any],
    *,
    num_clients: int,
    shards_per_client: int,
    min_samples: int = 1,
    seed: int,
) -> Parts:
    """Sort by label, cut into equal shards, and give every client `shards_per_client` at random.

    The test rows of a class are dealt out in the proportions of its training rows.
    """
    _check_size(len(train_y), num_clients, min_samples)
    num_shards = num_clients * shards_per_client
    if shards_per_client < 1 or num_shards > len(train_y):
        raise DataError(
            f"{num_clients} clients with {shards_per_client} shards each need at least one shard, "
            f"and at most as many as the {len(train_y)} training samples; change "
            "data.shards_per_client"
        )
    train, test, num_classes = _classes(train_y, test_y, "shards")
    rng = rng_for(seed, "partition", "shards")
    owner = rng.permutation(num_shards) // shards_per_client
    cuts = np.array_split(np.sort(train), num_shards)
    counts = np.zeros((num_clients, num_classes), dtype=np.int64)
    for client, labels in zip(owner, cuts):
        counts[client] += np.bincount(labels, minlength=num_classes)
    return _deal(counts, train, test, min_samples, seed)


def _check_size(num_samples: int, num_clients: int, min_samples: int) -> None:
    if num_clients < 1:
        raise DataError(f"data.num_clients must be at least 1, got {num_clients}")
    needed = num_clients * max(min_samples, 1)
    if needed > num_samples:
        raise DataError(
            f"{num_clients} clients with at least {max(min_samples, 1)} training samples each need "
            f"{needed}, but there are {num_samples}; lower data.num_clients or data.min_samples"
        )


def _classes(
    train_y: NDArray[Any], test_y: NDArray[Any], partition: str
) -> tuple[Samples, Samples, int]:
    """Renumber the labels that occur from 0 without gaps."""
    if train_y.dtype.kind not in "biu" or test_y.dtype.kind not in "biu":
        raise DataError(
            f"the {partition} partition needs integer class labels, got {train_y.dtype} and "
            f"{test_y.dtype} targets; use data.partition=iid"
        )
    labels, codes = np.unique(np.concatenate([train_y, test_y]), return_inverse=True)
    return codes[: len(train_y)], codes[len(train_y) :], len(labels)


def _deal(counts: Counts, train: Samples, test: Samples, min_samples: int, seed: int) -> Parts:
    """Turn counts of training samples into rows, and let the test set follow them."""
    counts = _raise_to_minimum(counts, max(min_samples, 1), rng_for(seed, "partition", "minimum"))
    rng = rng_for(seed, "partition", "test")
    # A class that nobody trains on has no proportions to follow: it is dealt out evenly.
    weights = np.where(counts.sum(axis=0) > 0, counts, 1)
    test_counts = _apportion(weights, np.bincount(test, minlength=counts.shape[1]), rng)
    test_counts = _one_test_row_each(test_counts, counts)
    return Parts(
        _draw_rows(counts, train, rng_for(seed, "partition", "train")),
        _draw_rows(test_counts, test, rng),
    )


def _apportion(weights: NDArray[Any], totals: Counts, rng: np.random.Generator) -> Counts:
    """Split each class's total over the clients in proportion to its column of weights.

    Each count is the exact proportion rounded down or up; one random offset per class makes
    that fair, and keeps the same clients from being rounded up in every class.
    """
    ends = np.cumsum(weights, axis=0, dtype=np.float64)
    cuts = np.floor(ends / ends[-1] * totals + rng.random(len(totals))).astype(np.int64)
    # Adding an offset near 1 may round up past the total.
    counts: Counts = np.diff(np.minimum(cuts, totals), axis=0, prepend=0)
    return counts


def _raise_to_minimum(counts: Counts, minimum: int, rng: np.random.Generator) -> Counts:
    """Move random samples from the largest clients to those with fewer than `minimum`.

    Ends because `_check_size` has found enough samples: while one client lacks some, another
    has some to spare.
    """
    counts = counts.copy()
    sizes = counts.sum(axis=1)
    for client in np.flatnonzero(sizes < minimum):
        while sizes[client] < minimum:
            donor = sizes.argmax()
            num_moved = min(minimum - sizes[client], sizes[donor] - minimum)
            moved = rng.multivariate_hypergeometric(counts[donor], num_moved)
            counts[donor] -= moved
            counts[client] += moved
            sizes[donor] -= num_moved
            sizes[client] += num_moved
    return counts


def _one_test_row_each(counts: Counts, train_counts: Counts) -> Counts:
    """Give clients without a test row one of those with several, of a class they train on if any.

    Where there are fewer test rows than clients, some clients keep none.
    """
    counts = counts.copy()
    for client in np.flatnonzero(counts.sum(axis=1) == 0):
        offers = np.where(counts.sum(axis=1, keepdims=True) > 1, counts, 0)
        best = offers.max(axis=0)
        if not best.any():
            break
        wanted = np.where(best > 0, train_counts[client], 0)
        label = wanted.argmax() if wanted.any() else best.argmax()
        counts[offers[:, label].argmax(), label] -= 1
        counts[client, label] += 1
    return counts


def _draw_rows(counts: Counts, labels: Samples, rng: np.random.Generator) -> list[Samples]:
    """Rows per client, ascending, with as many of every class as `counts` says."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label, column in enumerate(counts.T):
        rows = rng.permutation(np.flatnonzero(labels == label))
        owner[rows] = np.repeat(np.arange(len(counts)), column)
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(counts.sum(axis=1))[:-1])


def hold_out(rows: Samples, fraction: float, seed: int, client: int) -> tuple[Samples, Samples]:
    """Split a client's rows into those to train on and those held out, by a seeded draw.

    At least one row is held out where there are two or more, and one is left to train on;
    a fraction of 0 holds out none.
    """
    if fraction == 0 or len(rows) < 2:
        return rows, rows[:0]
    num_held = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
    order = rng_for(seed, "holdout", client).permutation(rows)
    return np.sort(order[num_held:]), np.sort(order[:num_held])


def at_most(rows: Samples, number: int | None, seed: int, client: int) -> Samples:
    """So many of a client's rows, by a seeded draw; all of them where there are fewer."""
    if number is None or len(rows) <= number:
        return rows
    return np.sort(rng_for(seed, "samples", client).permutation(rows)[:number])
