"""Which client owns each row, and at which position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import ClientData, Samples, SplitName
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True)
class RowOwners:
    """Of every row its owner (−1: none), and the owner's position of it."""

    client: NDArray[np.int64]
    position: NDArray[np.int64]

    @classmethod
    def of(cls, clients: Mapping[NodeId, ClientData], split: SplitName) -> RowOwners:
        rows = {client: rows_in(data, split) for client, data in clients.items()}
        end = 1 + max((int(own.max(initial=-1)) for own in rows.values()), default=-1)
        owner, position = np.full(end, -1, np.int64), np.zeros(end, np.int64)
        for client, own in rows.items():
            owner[own], position[own] = client, np.arange(len(own))
        return cls(owner, position)

    def has_any(self, rows: Samples) -> bool:
        """Whether any of these rows has an owner; rows may lie beyond the last."""
        return bool((self.client[rows[rows < len(self.client)]] >= 0).any())

    def by_client(self, rows: Samples) -> list[tuple[NodeId, Samples]]:
        """Group rows by their owner, as the owner's positions, in the order given."""
        owners = self.client[rows]
        return [
            (NodeId(owner), self.position[rows[owners == owner]])
            for owner in np.unique(owners).tolist()
            if owner >= 0
        ]


def rows_in(data: ClientData, split: SplitName) -> Samples:
    """A client's rows of a split, in the order of its positions."""
    return data.test if split == "test" else np.concatenate([data.train, data.holdout])
