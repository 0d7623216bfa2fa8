"""What goes wrong while files are written: a full disk, or a kill, at a chosen moment."""

from __future__ import annotations

import errno
import io
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from safetensors.numpy import save_file

from sofa_fl.experiment.storage import disk

SAVE_FILE = "sofa_fl.experiment.storage.checkpoint.save_file"


@contextmanager
def full_disk(name: str, room: int) -> Iterator[None]:
    """No space left after `room` bytes in the first file whose name begins like that.

    As on a real disk, what there is space for is written.
    """
    plain, save, left = disk.write_all, save_file, room

    def write(file: io.FileIO, data: bytes) -> None:
        nonlocal left
        if not Path(str(file.name)).name.startswith(name):
            plain(file, data)
            return
        fits = data[:left]
        plain(file, fits)
        left -= len(fits)
        if len(fits) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.name))

    def saving(tensors: Any, path: Path, metadata: Any) -> None:
        nonlocal left
        save(tensors, path, metadata)
        if path.name.startswith(name):
            whole = path.stat().st_size
            os.truncate(path, min(left, whole))
            left -= min(left, whole)
            if path.stat().st_size < whole:
                raise SafetensorError(f"I/O error: No space left (os error {errno.ENOSPC})")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "write_all", write)
        patch.setattr(SAVE_FILE, saving)
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

    write, save = disk.write_all, save_file
    flush, rename = os.fsync, Path.replace

    def half(file: io.FileIO, data: bytes) -> None:
        kind = "event" if Path(str(file.name)).name == "events.jsonl" else "other"
        if kind == what and left == 1:
            write(file, data[: int(share * len(data))])
        strike(kind)
        write(file, data)

    def half_saved(tensors: Any, path: Path, metadata: Any) -> None:
        save(tensors, path, metadata)
        if what == "checkpoint" and left == 1:  # as safetensors leaves it, under a name of its own
            os.truncate(path, int(share * path.stat().st_size))
            path.with_name(".tmp3aB9xZ").write_bytes(path.read_bytes())
        strike("checkpoint")

    def flushed(file: int) -> None:
        strike("flush")
        flush(file)

    def renamed(path: Path, target: Path) -> Path:
        strike("rename")
        found = rename(path, target)
        strike("renamed")
        return found

    patch = pytest.MonkeyPatch()  # never undone: this process is to die
    patch.setattr(disk, "write_all", half)
    patch.setattr(SAVE_FILE, half_saved)
    patch.setattr(os, "fsync", flushed)
    patch.setattr(Path, "replace", renamed)
