"""The samples that pass through the server: given by one node, on their way to others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import Samples


class Lending:
    """Samples by row number, in memory only, and no longer than somebody trains on them."""

    def __init__(self) -> None:
        self._samples: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._refused: set[int] = set()

    def put(self, rows: Samples, x: NDArray[Any], y: NDArray[Any]) -> None:
        self._samples |= {row: (x[i].copy(), y[i].copy()) for i, row in enumerate(rows.tolist())}

    def refuse(self, rows: Samples) -> None:
        """These were asked for and not given: they are not asked for again."""
        self._refused |= set(rows.tolist())

    def keep(self, rows: Samples) -> None:
        """Drop all but these."""
        self._samples = {row: self._samples[row] for row in rows.tolist() if row in self._samples}

    def missing(self, rows: Samples) -> Samples:
        """Those that are neither here nor refused."""
        known = self._samples.keys() | self._refused
        return np.array([row for row in rows.tolist() if row not in known], dtype=np.int64)

    def has(self, rows: Samples) -> NDArray[np.bool_]:
        return np.array([row in self._samples for row in rows.tolist()], dtype=np.bool_)

    def get(self, rows: Samples) -> tuple[NDArray[Any], NDArray[Any]]:
        found = [self._samples[row] for row in rows.tolist()]
        return np.stack([x for x, _ in found]), np.stack([y for _, y in found])
