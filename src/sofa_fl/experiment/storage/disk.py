"""Atomic files: complete or absent, even after a kill, on a full disk, or after a power cut.

New content is written to another file, flushed, and renamed; then the folder, which holds the name,
is flushed. A reader sees the old file or the new one. The other file has a random name and is
created exclusively, so that nobody who can write to the folder can direct the content elsewhere.
Many bytes are written by several threads, which also check them.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from sofa_fl.errors import RunError

try:
    import fcntl
except ImportError:  # on Windows nothing is locked
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".partial"  # the end of an unfinished file's name
LARGE = 1 << 25  # bytes for which threads are worth starting
SLICE = 1 << 25  # written at a time: between any two slices a thread may have to wait for Python
THREADS = 4  # each has the lock of the file while it writes, and waits for the disk otherwise
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_flush = getattr(os, "fdatasync", os.fsync)
# CRC-32's polynomial without its highest term; the highest bit is the constant term.
_POLYNOMIAL = 0xEDB88320
_ONE, _BYTE = 1 << 31, 1 << 23  # 1, and x to the power of 8


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
    with replacing(path, mode) as file:
        write_all(file, data)


@contextlib.contextmanager
def replacing(
    path: Path, mode: int = 0o666, *, spare: Path | None = None, what: str = ""
) -> Iterator[io.FileIO]:
    """Open a file that takes the place of `path` once all is written and on disk.

    `spare` is a file that is no longer needed: overwriting it is faster than allocating space, and
    takes no more of it. `what` the file is goes into the message of an error.
    """
    temporary = temporary_for(path)
    try:
        if spare is not None:
            spare.replace(temporary)
        with create(temporary, mode) if spare is None else reopen(temporary) as file:
            yield file
            file.truncate()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        discard(temporary)
        raise RunError(f"cannot write {what}{path}: {error.strerror}") from None


def append_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Append to a file, which is created if there is none; return once the data are on disk."""
    with explained(f"cannot write {path}"), io.FileIO(path, "ab", opener=_opener(mode)) as file:
        write_all(file, data)
        os.fsync(file.fileno())


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


def write_checked(file: io.FileIO, data: memoryview, checksum: int) -> int:
    """Write `data` where the file stands, and continue a checksum over it.

    Whoever wants all of it on disk must still flush the file. Of many bytes, threads write and
    flush slices: so neither the disk nor the checksum waits for the other.
    """
    if data.nbytes < LARGE or not hasattr(os, "pwrite"):
        write_all(file, data)
        return zlib.crc32(data, checksum)
    number, first = file.fileno(), file.tell()

    def write(start: int) -> int:
        part = data[start : start + SLICE]
        found = zlib.crc32(part)  # this releases the interpreter's lock, as the others do
        write_at(number, part, first + start)
        _flush(number)
        return found

    starts = range(0, data.nbytes, SLICE)
    with ThreadPoolExecutor(THREADS, "slice") as threads:
        for start, found in zip(starts, threads.map(write, starts)):  # an error ends the others
            checksum = joined(checksum, found, min(SLICE, data.nbytes - start))
    file.seek(first + data.nbytes)
    return checksum


def write_at(number: int, data: memoryview, place: int) -> None:
    """Write all of it to an open file, at a place; see `write_all`."""
    rest = data
    while len(rest):
        written = os.pwrite(number, rest, place)
        rest, place = rest[written:], place + written


def joined(first: int, second: int, num_bytes: int) -> int:
    """Combine the CRC-32 of two pieces of data, of which the second has `num_bytes`.

    A checksum is a polynomial over two elements, modulo that of CRC-32.
    """
    return _product(_power(_BYTE, num_bytes), first) ^ second


def _product(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@cache  # parts have few lengths
def _power(base: int, exponent: int) -> int:
    power = _ONE
    while exponent:
        if exponent & 1:
            power = _product(power, base)
        base, exponent = _product(base, base), exponent >> 1
    return power
