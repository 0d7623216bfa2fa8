"""What goes wrong while files are written: a full disk, or a kill, at a chosen moment."""

from __future__ import annotations

import errno
import io
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sofa_fl.experiment.storage import checkpoint, disk
from sofa_fl.experiment.storage import run_folder as folder

Write = Callable[[io.FileIO, bytes | memoryview], None]


def patch_writes(patch: pytest.MonkeyPatch, write: Write) -> None:
    for module in (checkpoint, disk, folder):
        patch.setattr(module, "write_all", write)


@contextmanager
def full_disk(name: str, room: int) -> Iterator[None]:
    """No space left after `room` bytes in the first file whose name begins like that.

    As on a real disk, what there is space for is written.
    """
    plain, left = disk.write_all, room

    def write(file: io.FileIO, data: bytes | memoryview) -> None:
        nonlocal left
        if not Path(str(file.name)).name.startswith(name):
            plain(file, data)
            return
        fits = memoryview(data)[:left]
        plain(file, fits)
        left -= len(fits)
        if len(fits) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.name))

    with pytest.MonkeyPatch.context() as patch:
        patch_writes(patch, write)
        yield


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """The system itself refuses to let any file grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def die_at(what: str, number: int, share: float) -> None:
    """Let this process kill itself the `number`-th time that it does something to the disk.

    `what` is `checkpoint` or `event`, of which a `share` of the bytes is written before; or
    `flush`, `rename`, or `renamed`.
    """
    left = number

    def strike(kind: str) -> None:
        nonlocal left
        left -= kind == what
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    write, flush, rename = disk.write_all, os.fsync, Path.replace

    def half(file: io.FileIO, data: bytes | memoryview) -> None:
        kind = "event" if Path(str(file.name)).name == "events.jsonl" else "checkpoint"
        if kind == what and left == 1:
            write(file, memoryview(data)[: int(share * len(data))])
        strike(kind)
        write(file, data)

    def flushed(file: int) -> None:
        strike("flush")
        flush(file)

    def renamed(path: Path, target: Path) -> Path:
        strike("rename")
        found = rename(path, target)
        strike("renamed")
        return found

    patch = pytest.MonkeyPatch()  # never undone: this process is to die
    patch_writes(patch, half)
    patch.setattr(os, "fsync", flushed)
    patch.setattr(Path, "replace", renamed)
