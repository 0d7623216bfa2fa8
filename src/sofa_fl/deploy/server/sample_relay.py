"""Samples that pass through the server, from the machine that gave them to others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Samples


class SampleRelay:
    """Samples by row, in memory only, and only as long as a task trains on them."""

    def __init__(self) -> None:
        self._samples: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._refused: set[int] = set()

    def put(self, rows: Samples, x: NDArray[Any], y: NDArray[Any]) -> None:
        self._samples |= {row: (x[i].copy(), y[i].copy()) for i, row in enumerate(rows.tolist())}

    def refuse(self, rows: Samples) -> None:
        """Remember that the owner refused these, so that it is not asked for them again."""
        self._refused |= set(rows.tolist())

    def drop_all_but(self, rows: Samples) -> None:
        self._samples = {row: self._samples[row] for row in rows.tolist() if row in self._samples}

    def missing(self, rows: Samples) -> Samples:
        """The rows that are neither here nor refused."""
        known = self._samples.keys() | self._refused
        return np.array([row for row in rows.tolist() if row not in known], dtype=np.int64)

    def has(self, rows: Samples) -> NDArray[np.bool_]:
        return np.array([row in self._samples for row in rows.tolist()], dtype=np.bool_)

    def get(self, rows: Samples) -> tuple[NDArray[Any], NDArray[Any]]:
        samples = [self._samples[row] for row in rows.tolist()]
        return np.stack([x for x, _ in samples]), np.stack([y for _, y in samples])
