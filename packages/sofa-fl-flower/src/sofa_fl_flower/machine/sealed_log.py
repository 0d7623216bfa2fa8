"""A file that only grows, and another that says how long it is, sealed with the site's key.

It is never created on the fly: a log that is missing, short or altered is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import append_bytes, locked, write_bytes

RESTORE = "restore the site's state from a backup; until then, the site answers nothing"


class Log(Protocol):
    """Bytes that are only ever appended to."""

    def read(self) -> bytes: ...

    def append(self, data: bytes, after: int) -> None:
        """Append after the first `after` bytes; what a kill left behind them is dropped."""

    def locked(self) -> AbstractContextManager[object]:
        """Keep other processes from reading and appending meanwhile."""


@dataclass(slots=True)
class MemoryLog:
    """A log in memory, for a simulation."""

    content: bytearray = field(default_factory=bytearray)

    def read(self) -> bytes:
        return bytes(self.content)

    def append(self, data: bytes, after: int) -> None:
        self.content[after:] = data

    def locked(self) -> AbstractContextManager[object]:
        return nullcontext()


@dataclass(frozen=True, slots=True)
class SealedLog:
    """A log on disk.

    Attributes:
        file: The log; its seal lies beside it.
        key: The site's.
    """

    file: Path
    key: bytes

    @classmethod
    def create(cls, file: Path, key: bytes) -> SealedLog:
        """Create an empty log where there is none."""
        log = cls(file, key)
        append_bytes(file, b"", mode=0o600)
        log._seal(b"")
        return log

    @property
    def seal_file(self) -> Path:
        return self.file.with_name(f"{self.file.name}.seal")

    def read(self) -> bytes:
        """Return at least what was sealed; after a kill there may be more, or part of more."""
        try:
            content, sealed = self.file.read_bytes(), json.loads(self.seal_file.read_bytes())
            length, seal = int(sealed["length"]), str(sealed["seal"])
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(f"{self.file} or its seal is missing or damaged; {RESTORE}") from None
        if len(content) < length or self._seal_of(content[:length]) != seal:
            raise RunError(f"{self.file} has been truncated or altered; {RESTORE}")
        return content

    def append(self, data: bytes, after: int) -> None:
        """Return once the data and their seal are on disk."""
        content = self.read()[:after]
        os.truncate(self.file, len(content))
        append_bytes(self.file, data, mode=0o600)
        self._seal(content + data)

    def locked(self) -> AbstractContextManager[object]:
        return locked(self.file)

    def _seal(self, content: bytes) -> None:
        values = {"length": len(content), "seal": self._seal_of(content)}
        write_bytes(self.seal_file, json.dumps(values).encode() + b"\n", mode=0o600)

    def _seal_of(self, content: bytes) -> str:
        person = self.file.name.encode()[:16]
        return hashlib.blake2b(content, key=self.key, digest_size=32, person=person).hexdigest()
