"""Fetch a published dataset into a folder: checked by SHA-256, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path

from sofa_fl.data.published import PUBLISHED, Published
from sofa_fl.errors import DataError

CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30.0

# Called with `completed` bytes and the `total`, None where the mirror does not tell it.
OnBytes = Callable[..., None]


def cache_folder(name: str) -> Path:
    """Where a downloaded dataset is kept: under XDG_CACHE_HOME, by default ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sofa-fl" / name


def download(name: str, folder: Path | None = None) -> Path:
    """Fetch the files of a published dataset that `folder` does not hold yet, and return it.

    The default folder is `cache_folder(name)`. Progress is shown on stderr.
    """
    dataset = PUBLISHED.get(name)
    if dataset is None or not dataset.mirrors:
        known = ", ".join(sorted(key for key, value in PUBLISHED.items() if value.mirrors))
        raise DataError(f"{name!r} cannot be downloaded; these can: {known}")
    folder = cache_folder(name) if folder is None else folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot create {folder} to download {name} into it ({error.strerror}); set "
            "XDG_CACHE_HOME to a writable folder"
        ) from error

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for file in dataset.sums:
            task = progress.add_task(f"{name}: {file}", total=None)
            _fetch_from_any(name, dataset, folder / file, partial(progress.update, task))
    return folder


def _fetch_from_any(name: str, dataset: Published, path: Path, on_bytes: OnBytes) -> None:
    """Try one mirror after the other; do nothing where the file is there and intact."""
    sha256 = dataset.sums[path.name]
    with suppress(OSError):
        if hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return
    failures = []
    for mirror in dataset.mirrors:
        try:
            _fetch(mirror + path.name, path, sha256, on_bytes)
        except (OSError, HTTPException, DataError) as error:
            failures.append(f"{mirror}: {error}")
        else:
            return
    raise DataError(
        f"could not download {path.name} of {name} ({'; '.join(failures)}); put "
        f"{', '.join(dataset.sums)} into {path.parent} yourself, or into a folder that data.dir or "
        "SOFA_FL_DATA names"
    )


def _fetch(url: str, path: Path, sha256: str, on_bytes: OnBytes) -> None:
    # Beside its final place, so that the rename is atomic; the process id keeps two runs apart.
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    digest, done = hashlib.sha256(), 0
    try:
        with (
            urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response,
            part.open("wb") as out,
        ):
            total = response.length
            while chunk := response.read(CHUNK_BYTES):
                out.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                on_bytes(completed=done, total=total)
        if digest.hexdigest() != sha256:
            raise DataError(f"wrong SHA-256 {digest.hexdigest()} after {done} bytes")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
