"""Atomic files: complete or absent, even after a kill, on a full disk, or after a power cut.

New content is written to another file, flushed, and renamed; then the folder, which holds the name,
is flushed. A reader sees the old file or the new one. The other file has a random name and is
created exclusively, so that nobody who can write to the folder can direct the content elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sofa_fl.errors import RunError

try:
    import fcntl
except ImportError:  # on Windows nothing is locked
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".partial"  # the end of an unfinished file's name
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


class DamagedError(RunError):
    """A file of a run is not as it was written."""


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file completely or not at all; `mode` is its access rights, less the umask."""
    temporary = temporary_for(path)
    try:
        with create(temporary, mode) as file:
            write_all(file, data)
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        discard(temporary)
        raise RunError(f"cannot write {path}: {error.strerror}") from None


def append_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Append to a file, which is created if there is none; return once the data are on disk."""
    try:
        with io.FileIO(path, "ab", opener=_opener(mode)) as file:
            write_all(file, data)
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None


def _opener(mode: int = 0o666) -> Callable[[str, int], int]:
    return lambda path, flags: os.open(path, flags | _NO_LINKS, mode)


def temporary_for(path: Path) -> Path:
    """A name in the same folder that nobody can foresee."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")


def create(path: Path, mode: int = 0o666) -> io.FileIO:
    """Create a file that does not exist, not even as a link, and open it."""
    return io.FileIO(path, "x+b", opener=_opener(mode))


def reopen(path: Path) -> io.FileIO:
    """Open a file to overwrite it; a link is an error."""
    return io.FileIO(path, "r+b", opener=_opener())


@contextlib.contextmanager
def locked(path: Path, refusal: str | None = None, patience: float = 0.0) -> Iterator[None]:
    """Hold a file's lock, which ends with the process.

    Wait for it; with a `refusal`, wait no more than `patience` seconds and raise that then.
    """
    try:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS, 0o600)
    except OSError as error:
        raise RunError(f"cannot lock {path}: {error.strerror}") from None
    try:
        end = time.monotonic() + patience
        while fcntl is not None:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise RunError(str(refusal)) from None
                time.sleep(0.1)
        yield
    finally:
        os.close(opened)


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
