"""Files that are there whole or not at all: after a kill, on a full disk, when the power is cut.

What is new is written aside, flushed, and renamed; then the folder is flushed, which holds the
name. A reader sees the old file or the new one.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from sofa_fl.errors import RunError


class DamagedError(RunError):
    """A file of a run is not what was written."""


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(path.name + ".partial")
    try:
        with temporary.open("wb", buffering=0) as file:
            write_all(file, data)
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        discard(temporary)
        raise RunError(f"cannot write {path}: {error.strerror}") from None


def write_all(file: io.FileIO, data: bytes | memoryview) -> None:
    """Linux writes at most 2 GiB at a time, and less where the disk is nearly full."""
    rest = memoryview(data)
    while len(rest):
        rest = rest[file.write(rest) :]


def sync_folder(path: Path) -> None:
    """Let new names in a folder outlast a power cut; only POSIX has and needs this."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def discard(temporary: Path) -> None:
    """Delete what could not be finished: a full disk is not to stay full of it."""
    with contextlib.suppress(OSError):
        temporary.unlink()
