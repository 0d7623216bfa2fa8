"""Atomic files: complete or absent, even after a kill, on a full disk, or after a power cut.

New content is written to another file, flushed, and renamed; then the folder, which holds the name,
is flushed. A reader sees the old file or the new one. The other file has a random name and is
created exclusively, so that nobody who can write to the folder can direct the content elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sofa_fl.errors import RunError

try:
    import fcntl
except ImportError:  # on Windows nothing is locked
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".partial"  # the end of an unfinished file's name
SAFETENSORS_PARTIAL = ".tmp??????"  # what safetensors calls a file until it is whole
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


class DamagedError(RunError):
    """A file of a run is not as it was written."""


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Say in one sentence what the operating system refuses in here: `what`, and why."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{what}: {error.strerror}") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file completely or not at all; `mode` is its access rights, less the umask."""
    with replacing(path, mode) as temporary, reopen(temporary) as file:
        write_all(file, data)


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666, what: str = "") -> Iterator[Path]:
    """Create a file that takes the place of `path` once it is written and on disk.

    It may be written in here by safetensors too. `what` it is goes into the message of an error.
    """
    temporary = temporary_for(path)
    try:
        with create(temporary, mode) as file:
            rights = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        yield temporary
        with reopen(temporary) as file:
            if os.name == "posix":
                os.fchmod(file.fileno(), rights)  # safetensors puts another file in its place
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except _refusals() as error:
        discard(temporary)
        raise RunError(f"cannot write {what}{path}: {_reason(error)}") from None


def _refusals() -> tuple[type[Exception], ...]:
    """What is raised where the disk refuses; a machine of a deployment may not have safetensors."""
    try:
        from safetensors import SafetensorError
    except ImportError:
        return (OSError,)
    return OSError, SafetensorError


def _reason(error: Exception) -> str | None:
    """What the operating system says; safetensors has it among other words."""
    if isinstance(error, OSError):
        return error.strerror
    number = re.search(r"(?:os error|code:) (\d+)", str(error))
    return os.strerror(int(number[1])) if number else str(error)


def append_bytes(path: Path, data: bytes, mode: int = 0o666, *, alone: bool = False) -> None:
    """Append to a file, which is created if there is none; return once the data are on disk.

    Where nobody else appends (`alone`), what does not fit on the disk is taken back.
    """
    with explained(f"cannot write {path}"), io.FileIO(path, "ab", opener=_opener(mode)) as file:
        before = file.tell()
        try:
            write_all(file, data)
            os.fsync(file.fileno())
        except OSError:
            if alone:
                file.truncate(before)
            raise
        if not before:
            sync_folder(path.parent)


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
    with explained(f"cannot lock {path}"):
        opened = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS, 0o600)
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


def write_all(file: io.FileIO, data: bytes) -> None:
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
