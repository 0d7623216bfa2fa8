"""Atomic files: complete or absent, even after a kill, on a full disk, or after a power cut.

New content is written to another file, flushed, and renamed; then the folder, which holds the name,
is flushed. A reader sees the old file or the new one.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from sofa_fl.errors import RunError


class DamagedError(RunError):
    """A file of a run is not as it was written."""


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file completely or not at all."""
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
    """Write all of it: Linux takes at most 2 GiB at a time, and less if the disk is nearly full."""
    rest = memoryview(data)
    while len(rest):
        rest = rest[file.write(rest) :]


def sync_folder(path: Path) -> None:
    """Make new names in a folder survive a power cut; only POSIX needs this."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def discard(temporary: Path) -> None:
    """Delete an unfinished file, so that it does not keep a disk full."""
    with contextlib.suppress(OSError):
        temporary.unlink()
