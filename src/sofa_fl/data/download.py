"""The published datasets: their files, checksums and pixel statistics, and how to fetch them.

A file is checked by SHA-256, and is there as a whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path

from sofa_fl.errors import DataError

TRAIN_IMAGES = "train-images-idx3-ubyte.gz"
TRAIN_LABELS = "train-labels-idx1-ubyte.gz"
TEST_IMAGES = "t10k-images-idx3-ubyte.gz"
TEST_LABELS = "t10k-labels-idx1-ubyte.gz"
CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30.0

# Called with `completed` bytes and the `total`, None where the mirror does not tell it.
OnBytes = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Published:
    """A published dataset of four idx files.

    Attributes:
        sums: SHA-256 of every file, as it is published (gzipped).
        mean: Mean of the training pixels, of a range of 0 to 1.
        std: Standard deviation of the same.
        mirrors: Addresses that a file's name is appended to, tried in this order. None for a
            dataset that ships with the package.
    """

    sums: Mapping[str, str]
    mean: float
    std: float
    mirrors: tuple[str, ...] = ()


PUBLISHED: dict[str, Published] = {
    "mnist": Published(
        sums={
            TRAIN_IMAGES: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            TRAIN_LABELS: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            TEST_IMAGES: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            TEST_LABELS: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        mean=0.1307,
        std=0.3081,
    ),
    "fashion-mnist": Published(
        sums={
            TRAIN_IMAGES: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            TRAIN_LABELS: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            TEST_IMAGES: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            TEST_LABELS: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
        mean=0.2860,
        std=0.3530,
        mirrors=(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            # Plain HTTP is all that this mirror speaks; the sums make up for it.
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
    ),
}


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
