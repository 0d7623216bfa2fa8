"""The samples that a machine owns, as the user's loader returns them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.data.federated_data import Arrays, Samples
from sofa_fl.errors import DataError

DIGEST_BITS = 128
MachineConfig = Mapping[str, bool | float | int | str]  # what --node-config said


@dataclass(frozen=True, slots=True)
class MachineData:
    """The samples of one machine.

    Attributes:
        train: To train on, and to share.
        test: For scores only.
        holdout: To compare losses on; by default a part of `train`.
        ids: Row numbers of the training samples, if they have some that no other machine uses; by
            default the server assigns them.
        name: What the client is called in a simulation; elsewhere the site's policy says it.
    """

    train: Arrays
    test: Arrays | None = None
    holdout: Arrays | None = None
    ids: Samples | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if not len(self.train):
            raise DataError("a machine needs at least one training sample; check load_data")
        if self.ids is not None and len(np.unique(self.ids)) != len(self.train):
            raise DataError(
                f"{len(self.train)} training samples need as many distinct ids, got "
                f"{len(np.unique(self.ids))}"
            )


Loaded = MachineData | tuple[Arrays, Arrays]
LoadData = Callable[[MachineConfig], Loaded]


def as_machine_data(loaded: Loaded) -> MachineData:
    """Accept what a loader returned: `MachineData`, or training and test samples."""
    if isinstance(loaded, MachineData):
        return loaded
    pair: Any = loaded  # a user's function may return anything
    if isinstance(pair, tuple) and [type(part) for part in pair] == [Arrays, Arrays]:
        return MachineData(*pair)
    raise DataError(
        f"load_data must return (train, test), got {type(loaded).__name__}; create both with "
        "sofa_fl.from_arrays"
    )


def with_holdout(data: MachineData, fraction: float) -> MachineData:
    """Hold out some of the training samples, unless some are already.

    A sample's content alone says whether it is held out, so that about this fraction is. So they
    are the same in all runs, whatever the server asks and whatever samples come or go: it cannot
    find out a single sample by moving it from one part to the other.
    """
    if data.holdout is not None or fraction == 0:
        return data
    train, limit = data.train, int(fraction * (1 << DIGEST_BITS))
    digests = [
        int.from_bytes(_digest(train.x[i : i + 1], train.y[i : i + 1])) for i in range(len(train))
    ]
    held = np.array([i for i, digest in enumerate(digests) if digest < limit], dtype=np.int64)
    rows = np.setdiff1d(np.arange(len(train)), held)
    if not len(rows):
        raise DataError(f"all {len(train)} samples would be held out; lower holdout in the policy")
    ids = None if data.ids is None else data.ids[rows]
    return replace(data, train=train.take(rows), holdout=train.take(held), ids=ids)


def example_data(config: DataConfig, seed: int, client: int) -> MachineData:
    """What one client owns of a partitioned dataset, to try a federation with."""
    data = federate(config, seed)
    if not 0 <= client < len(data.clients):
        raise DataError(
            f"client must be from 0 to {len(data.clients) - 1}, got {client}; change it in "
            "--node-config, or raise data.num_clients"
        )
    own = data.clients[client]
    return MachineData(
        data.train.take(own.train),
        data.test.take(own.test),
        data.train.take(own.holdout),
        own.train,
        data.names[client] if data.names else "",
    )


def fingerprint_of(data: MachineData) -> bytes:
    """A hash of all samples; it changes with any of them."""
    parts = (data.train, data.holdout, data.test)
    return _digest(*(a for part in parts if part is not None for a in (part.x, part.y)))


def _digest(*arrays: NDArray[Any]) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST_BITS // 8)
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
