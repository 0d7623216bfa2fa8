"""What a federation's data look like: rows of samples, and who owns which rows.

NumPy only. Samples are passed about as row numbers of one array; since every training
row has one owner, a row number says both owner and index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.preprocess import Preprocessing, TargetScaling, fit_targets
from sofa_fl.errors import DataError

Samples = NDArray[np.int64]
SplitName = Literal["train", "test"]
Client = TypeVar("Client", bound=int)


@dataclass(frozen=True, slots=True)
class Arrays:
    """Inputs and targets, row by row; a network gets `(x * scale + shift)` as float32.

    `x` may stay uint8, which takes a quarter of the memory; `y` contains int64 class labels, or
    float32 targets for regression. `preprocessing` says what their columns are called, if they have
    names.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    scale: float = 1.0
    shift: float = 0.0
    preprocessing: Preprocessing | None = None

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} inputs do not match {len(self.y)} targets")

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        inputs = f"{self.x.dtype} inputs of shape {self.x.shape[1:]}"
        return f"Arrays({len(self)} samples, {inputs}, {self.y.dtype} targets)"

    def take(self, rows: Samples) -> Arrays:
        """Only these rows, in this order."""
        return replace(self, x=self.x[rows], y=self.y[rows])

    @property
    def num_classes(self) -> int:
        """The number of classes of integer labels: the largest label plus one."""
        return int(self.y.max()) + 1 if len(self.y) else 0


class OwnedRows(dict[Client, Samples]):
    """The rows of every client, and of every row the sample that it is a copy of."""

    def __init__(self, rows: Mapping[Client, Samples], sources: Samples | None = None) -> None:
        super().__init__(rows)
        self.sources = sources


@dataclass(frozen=True, slots=True)
class ClientData:
    """One client's rows: `train` and `holdout` in the training array, `test` in the test array.

    `holdout` is training data that the client never trains on and never shares; losses are compared
    on it.
    """

    train: Samples
    holdout: Samples
    test: Samples


Truth = tuple[tuple[int, ...], ...]  # `truth[k][i]`: the group of client `i` at depth `k`


@dataclass(frozen=True, slots=True)
class Stage:
    """Who is present from round `since` on, with which rows, and in which true groups."""

    since: int
    clients: Mapping[int, ClientData]
    truth: Truth = ()


@dataclass(frozen=True)
class FederatedData:
    """All samples, and which client owns which.

    Attributes:
        train: Training samples, including held-out ones.
        test: Samples that are used only for scoring.
        clients: The rows of every client that is ever present, as of when it first is; no training
            row has two owners.
        num_outputs: Size of the network's last layer.
        truth: The true groups, if they are known: `truth[k][i]` is the group of client `i` at depth
            `k`, finest first. They are used only for scoring, and by the oracle.
        stages: Who is present with which rows, and from which round on, if data or clients change
            during the run; empty if nothing changes.
        names: The clients' names, by number; empty if they have none.
        preprocessing: How raw rows became these inputs; exported models do the same.
        sources: If training rows are copies of samples, such as rotated images: the sample of every
            row. Whoever has one copy knows the sample.
        target_scaling: How the targets of a regression were scaled for training; outputs and errors
            are told in the units that the targets had before.
    """

    train: Arrays
    test: Arrays
    clients: tuple[ClientData, ...]
    num_outputs: int
    truth: Truth = ()
    stages: tuple[Stage, ...] = ()
    names: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    sources: Samples | None = None
    target_scaling: TargetScaling | None = None

    def __repr__(self) -> str:
        count = f"{len(self.clients)} client{'' if len(self.clients) == 1 else 's'}"
        named = f" ({', '.join(self.names[:3])}{', …' if len(self.names) > 3 else ''})"
        who = count + named if self.names else count
        return f"FederatedData({who}, train={self.train!r}, test={self.test!r})"

    def __post_init__(self) -> None:
        _check_order(self.stages)
        _check_names(self.names, len(self.clients))
        owner = np.full(len(self.train), -1, dtype=np.int64)
        for stage in self._stages:
            if unknown := [i for i in stage.clients if not 0 <= i < len(self.clients)]:
                raise DataError(
                    f"there are {len(self.clients)} clients, but a stage names client {unknown[0]}"
                )
            if empty := [i for i, c in stage.clients.items() if not len(c.train)]:
                raise DataError(f"clients {empty} have no training sample")
            for i, client in stage.clients.items():
                self._check_rows(i, client)
                rows = np.concatenate([client.train, client.holdout])
                if len(np.unique(rows)) < len(rows) or not np.isin(owner[rows], (-1, i)).all():
                    raise DataError("a training sample belongs to more than one client")
                owner[rows] = i

    def _check_rows(self, number: int, client: ClientData) -> None:
        """Raise if a client has rows that do not exist."""
        for part, size in (
            ("train", len(self.train)),
            ("holdout", len(self.train)),
            ("test", len(self.test)),
        ):
            rows = np.asarray(getattr(client, part))
            if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
                raise DataError(
                    f"{part} of client {number} must be a one-dimensional array of row numbers, "
                    f"got {rows.dtype} of shape {rows.shape}"
                )
            if len(rows) and not 0 <= rows.min() <= rows.max() < size:
                raise DataError(
                    f"{part} of client {number} must be rows from 0 to {size - 1}, got rows from "
                    f"{rows.min()} to {rows.max()}"
                )

    @cached_property
    def _stages(self) -> tuple[Stage, ...]:
        return self.stages or (Stage(0, dict(enumerate(self.clients)), self.truth),)

    def stage(self, round: int) -> Stage:
        """The stage that applies in a round."""
        return next(stage for stage in reversed(self._stages) if stage.since <= round)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of training samples of every client."""
        return np.array([len(client.train) for client in self.clients], dtype=np.int64)

    @property
    def first_id(self) -> int:
        """The smallest number that is never a client's."""
        return len(self.clients)

    def class_counts(self, rows: Samples) -> NDArray[np.int64]:
        """How many of these training samples belong to each class."""
        return np.bincount(self.train.y[rows], minlength=self.num_outputs)

    @property
    def target_variance(self) -> float:
        """The variance of the training targets of a regression."""
        return float(self.train.y.var(axis=0).mean())

    def with_scaled_targets(self) -> FederatedData:
        """The same data with float targets of mean 0 and standard deviation 1 over all clients.

        Both are those of the rows that somebody trains on or holds out, in any stage. Class labels
        are left as they are, and so are targets that were scaled before.
        """
        if self.train.y.dtype.kind != "f" or self.target_scaling is not None:
            return self
        stages = [client for stage in self._stages for client in stage.clients.values()]
        rows = np.unique(np.concatenate([r for c in stages for r in (c.train, c.holdout)]))
        scaling = fit_targets(self.train.y[rows])
        train, test = (replace(a, y=scaling.apply(a.y)) for a in (self.train, self.test))
        return replace(self, train=train, test=test, target_scaling=scaling)

    def digest(self) -> str:
        """A digest that is equal for the same samples, assigned in the same way."""
        return self._digest

    @cached_property
    def _digest(self) -> str:  # read once: a run needs it when it begins and when it ends
        digest = hashlib.blake2b(digest_size=16)
        splits = [array for part in (self.train, self.test) for array in (part.x, part.y)]
        rows = [
            rows
            for stage in self._stages
            for client in stage.clients.values()
            for rows in (client.train, client.holdout, client.test)
        ]
        for array in (*splits, *rows):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _check_order(stages: tuple[Stage, ...]) -> None:
    if stages and stages[0].since != 0:
        raise DataError(f"the first stage must begin at round 0, got {stages[0].since}")
    for before, after in pairwise(stages):
        if after.since <= before.since:
            raise DataError(
                f"stages must begin in increasing rounds, got rounds {before.since}, {after.since}"
            )
    if empty := [stage.since for stage in stages if not stage.clients]:
        raise DataError(
            f"a stage needs at least one client, but the stage of round {empty[0]} has none"
        )


def _check_names(names: tuple[str, ...], num_clients: int) -> None:
    if names and len(names) != num_clients:
        raise DataError(
            f"there must be one name for each of the {num_clients} clients, got {len(names)}"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"every client needs a unique name, got {twice!r} twice")
