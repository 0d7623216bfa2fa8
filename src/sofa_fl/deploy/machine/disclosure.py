"""A site's ledger of the samples that it has disclosed, and the cap that it enforces.

A sample is known by a keyed hash of its content, so the ledger outlives any change of the
hold-out, the order or the number of samples. It belongs to the site, not to a run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from sofa_fl.data.base import Arrays, Samples
from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import append_bytes, locked, write_bytes

Mark = bytes  # a keyed hash of one sample
MARK_SIZE = 16
RESTORE = "restore the site's state from a backup; until then nothing is given"


class Ledger(Protocol):
    """The marks of all samples that have ever been disclosed."""

    def read(self) -> set[Mark]: ...
    def add(self, marks: Sequence[Mark]) -> None: ...

    def locked(self) -> AbstractContextManager[object]:
        """Keep other processes from reading and adding meanwhile."""


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Marks in memory, for a simulation."""

    marks: set[Mark] = field(default_factory=set)

    def read(self) -> set[Mark]:
        return set(self.marks)

    def add(self, marks: Sequence[Mark]) -> None:
        self.marks.update(marks)

    def locked(self) -> AbstractContextManager[object]:
        return nullcontext()


@dataclass(frozen=True, slots=True)
class FileLedger:
    """A file that only grows, and another that says how long it is, sealed with the site's key.

    It is never created on the fly: a ledger that is missing, short or altered is an error, and
    nothing is disclosed.
    """

    folder: Path
    key: bytes

    @classmethod
    def create(cls, folder: Path, key: bytes) -> FileLedger:
        """Create an empty ledger in a folder that has none."""
        ledger = cls(folder, key)
        append_bytes(ledger.file, b"", mode=0o600)
        ledger._seal(b"")
        return ledger

    @property
    def file(self) -> Path:
        return self.folder / "ledger"

    @property
    def seal_file(self) -> Path:
        return self.folder / "ledger.seal"

    def read(self) -> set[Mark]:
        content = self._content()
        return {content[at : at + MARK_SIZE] for at in range(0, len(content), MARK_SIZE)}

    def add(self, marks: Sequence[Mark]) -> None:
        """Return once the marks are on disk."""
        content, new = self._content(), b"".join(marks)
        os.truncate(self.file, len(content))  # a kill may have left a part of a mark
        append_bytes(self.file, new, mode=0o600)
        self._seal(content + new)

    def locked(self) -> AbstractContextManager[object]:
        return locked(self.file)

    def _content(self) -> bytes:
        """All whole marks: at least those that were sealed."""
        try:
            content, sealed = self.file.read_bytes(), json.loads(self.seal_file.read_bytes())
            length, seal = int(sealed["length"]), str(sealed["seal"])
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(
                f"the ledger of disclosed samples in {self.folder} is missing or damaged; {RESTORE}"
            ) from None
        if len(content) < length or self._seal_of(content[:length]) != seal:
            raise RunError(
                f"the ledger of disclosed samples in {self.folder} has been cut or altered; "
                f"{RESTORE}"
            )
        return content[: len(content) // MARK_SIZE * MARK_SIZE]

    def _seal(self, content: bytes) -> None:
        values = {"length": len(content), "seal": self._seal_of(content)}
        write_bytes(self.seal_file, json.dumps(values).encode() + b"\n", mode=0o600)

    def _seal_of(self, content: bytes) -> str:
        return hashlib.blake2b(content, key=self.key, digest_size=32, person=b"seal").hexdigest()


def mark_of(samples: Arrays, position: int, key: bytes) -> Mark:
    """The mark of one sample: the same for the same content, and of no use without the key."""
    digest = hashlib.blake2b(key=key, digest_size=MARK_SIZE, person=b"sample")
    for array in (samples.x, samples.y):
        row = np.ascontiguousarray(array[position])
        digest.update(f"{row.dtype} {row.shape}".encode())
        digest.update(row.tobytes())
    return digest.digest()


def release(samples: Arrays, asked: Samples, cap: float, ledger: Ledger, key: bytes) -> Samples:
    """Record as disclosed, and return, the positions asked for that the cap allows.

    `cap` is the fraction of `samples` that may ever be disclosed. Everything that the ledger has
    counts, also samples that the site no longer owns. Samples disclosed before are allowed again,
    others in the order asked until the cap.
    """
    if cap <= 0:
        return np.empty(0, dtype=np.int64)
    with ledger.locked():
        known = ledger.read()
        room = int(cap * len(samples)) - len(known)
        allowed: list[int] = []
        new: list[Mark] = []
        for position in dict.fromkeys(asked.tolist()):
            if not 0 <= position < len(samples):
                continue
            mark = mark_of(samples, position, key)
            if mark not in known:
                if room <= 0:
                    continue
                known.add(mark)
                new.append(mark)
                room -= 1
            allowed.append(position)
        if new:
            ledger.add(new)
    return np.array(allowed, dtype=np.int64)
