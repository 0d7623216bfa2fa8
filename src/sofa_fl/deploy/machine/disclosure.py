"""A machine's own record of the samples that it has disclosed, and the cap that it enforces.

It belongs to the machine, not to a run: what it disclosed in one run counts in the next.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import Samples
from sofa_fl.experiment.storage.disk import write_text


class StateStore(Protocol):
    """Where a machine keeps bytes from one message to the next."""

    def read(self, name: str) -> bytes: ...
    def write(self, name: str, content: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class FileStore:
    """Keeps state in a folder, over restarts."""

    folder: Path

    def read(self, name: str) -> bytes:
        path = self.folder / name
        return bytes.fromhex(path.read_text(encoding="ascii")) if path.exists() else b""

    def write(self, name: str, content: bytes) -> None:
        """Return once the content is on disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / name, content.hex())


@dataclass(frozen=True, slots=True)
class MemoryStore:
    """Keeps state in a mapping, as long as that lives."""

    values: MutableMapping[str, Any]

    def read(self, name: str) -> bytes:
        return bytes(self.values.get(name, b""))

    def write(self, name: str, content: bytes) -> None:
        self.values[name] = content


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Which of `size` samples have been disclosed, and how many ever may be.

    Attributes:
        name: Of the record in the store; the same for the same samples.
        cap: Fraction of the samples.
    """

    store: StateStore
    name: str
    size: int
    cap: float

    def release(self, asked: Samples) -> Samples:
        """Record as disclosed, and return, those samples asked for that the cap allows.

        Samples disclosed before are allowed again; others in the order asked until the cap.
        """
        disclosed = self.disclosed()
        seen = np.zeros(self.size, dtype=np.bool_)
        room = int(self.cap * self.size) - int(disclosed.sum())
        allowed = []
        for position in asked.tolist():
            if not 0 <= position < self.size or seen[position]:
                continue
            seen[position] = True
            if not disclosed[position]:
                if room <= 0:
                    continue
                disclosed[position] = True
                room -= 1
            allowed.append(position)
        if allowed and self.cap > 0:
            self.store.write(self.name, np.packbits(disclosed).tobytes())
        return np.array(allowed if self.cap > 0 else [], dtype=np.int64)

    def disclosed(self) -> NDArray[np.bool_]:
        """Whether each sample has been disclosed."""
        bits = np.frombuffer(self.store.read(self.name), dtype=np.uint8)
        if len(bits) != -(-self.size // 8):
            return np.zeros(self.size, dtype=np.bool_)
        return np.unpackbits(bits, count=self.size).astype(np.bool_)
