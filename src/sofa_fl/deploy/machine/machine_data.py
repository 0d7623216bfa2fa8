"""What a node owns: its samples, as its loader gives them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sofa_fl.data.base import Arrays, Samples
from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.data.partition import hold_out
from sofa_fl.errors import DataError

NodeConfig = Mapping[str, bool | float | int | str]  # what was said when the node was started


@dataclass(frozen=True, slots=True)
class NodeData:
    """The samples of one node.

    Attributes:
        train: To train on, and to share of.
        test: Only ever scored.
        holdout: What losses are compared on; by default a part of `train` is taken for it.
        ids: Numbers of the training samples, if they have some that no other node's have; by
            default the server numbers them.
    """

    train: Arrays
    test: Arrays | None = None
    holdout: Arrays | None = None
    ids: Samples | None = None

    def __post_init__(self) -> None:
        if not len(self.train):
            raise DataError("a node needs at least one sample to train on")
        if self.ids is not None and len(np.unique(self.ids)) != len(self.train):
            raise DataError(f"{len(self.train)} samples need as many different ids")


Loaded = NodeData | tuple[Arrays, Arrays]
LoadData = Callable[[NodeConfig], Loaded]


def node_data(loaded: Loaded) -> NodeData:
    """What a loader returned: `NodeData`, or training and test samples."""
    if isinstance(loaded, NodeData):
        return loaded
    pair: Any = loaded  # a user's function may return anything
    if isinstance(pair, tuple) and [type(part) for part in pair] == [Arrays, Arrays]:
        return NodeData(*pair)
    raise DataError(f"load_data must return (train, test), got {type(loaded).__name__}")


def held_out(data: NodeData, fraction: float, seed: int, client: int) -> NodeData:
    """The same samples with some of the training samples held out, if none are yet."""
    if data.holdout is not None or fraction == 0:
        return data
    rows, held = hold_out(np.arange(len(data.train)), fraction, seed, client)
    ids = None if data.ids is None else data.ids[rows]
    return NodeData(data.train.take(rows), data.test, data.train.take(held), ids)


def part_of(config: DataConfig, seed: int, client: int) -> NodeData:
    """What client number `client` owns when a dataset is dealt out: to try a federation with."""
    data = federate(config, seed)
    if not 0 <= client < len(data.clients):
        raise DataError(f"there are {len(data.clients)} clients to be, and no {client}")
    mine = data.clients[client]
    return NodeData(
        data.train.take(mine.train),
        data.test.take(mine.test),
        data.train.take(mine.holdout),
        mine.train,
    )


def mark_of(data: NodeData) -> str:
    """The same for the same samples, and for no others: says who a node is, not what it has."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (data.train, data.holdout, data.test):
        for array in () if part is None else (part.x, part.y):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
