"""A node's own record of which of its samples ever left it, and the cap that it keeps to.

It is the node's, not the run's: what was given away in one run counts in the next.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sofa_fl.data.base import Samples
from sofa_fl.experiment.storage.disk import write_text


class Shelf(Protocol):
    """Where a node keeps bytes from one message to the next."""

    def read(self, name: str) -> bytes: ...
    def write(self, name: str, content: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class FileShelf:
    """A folder of the node: outlives restarts."""

    folder: Path

    def read(self, name: str) -> bytes:
        path = self.folder / name
        return bytes.fromhex(path.read_text(encoding="ascii")) if path.exists() else b""

    def write(self, name: str, content: bytes) -> None:
        """On the disk before anything else happens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / name, content.hex())


@dataclass(frozen=True, slots=True)
class MemoryShelf:
    """Lives as long as the mapping does."""

    kept: MutableMapping[str, Any]

    def read(self, name: str) -> bytes:
        return bytes(self.kept.get(name, b""))

    def write(self, name: str, content: bytes) -> None:
        self.kept[name] = content


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Which of `size` samples have left, and how many ever may.

    Attributes:
        name: Of the record on the shelf; the same for the same samples.
        cap: Fraction of the samples.
    """

    shelf: Shelf
    name: str
    size: int
    cap: float

    def release(self, asked: Samples) -> Samples:
        """Those of the samples asked for that may go; from now on they have left.

        What has left before may go again; the rest as far as the cap reaches, in the order asked.
        """
        has_left = self.left()
        seen = np.zeros(self.size, dtype=np.bool_)
        room = int(self.cap * self.size) - int(has_left.sum())
        allowed = []
        for position in asked.tolist():
            if not 0 <= position < self.size or seen[position]:
                continue
            seen[position] = True
            if not has_left[position]:
                if room <= 0:
                    continue
                has_left[position] = True
                room -= 1
            allowed.append(position)
        if allowed and self.cap > 0:
            self.shelf.write(self.name, np.packbits(has_left).tobytes())
        return np.array(allowed if self.cap > 0 else [], dtype=np.int64)

    def left(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of every sample, whether it has left."""
        bits = np.frombuffer(self.shelf.read(self.name), dtype=np.uint8)
        if len(bits) != -(-self.size // 8):
            return np.zeros(self.size, dtype=np.bool_)
        return np.unpackbits(bits, count=self.size).astype(np.bool_)
