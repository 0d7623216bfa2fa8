"""Find and read a dataset by name: a published one, or any folder of idx files.

Looked for in the folder given, in the one that SOFA_FL_DATA names, in the package, in the cache;
a published dataset that is in none of them is downloaded.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data import cifar10
from sofa_fl.data.download import (
    PUBLISHED,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    Published,
    cache_folder,
    download,
)
from sofa_fl.data.federated_data import Arrays
from sofa_fl.errors import DataError

PACKAGE_FOLDER = Path(__file__).parent
TRAIN = ("*train-images*",), ("*train-labels*",)
TEST = ("*test-images*", "*t10k-images*"), ("*test-labels*", "*t10k-labels*")
# The third byte of the magic number says what the values are; all are big-endian.
DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP_MAGIC = b"\x1f\x8b"


def load_dataset(name: str, data_dir: Path | None = None) -> tuple[Arrays, Arrays]:
    """Training and test samples of a dataset; images stay uint8, of shape (n, 1, height, width).

    `mnist` ships with the package and `fashion-mnist` is downloaded where it is not found; both
    are checked by SHA-256. `cifar-10` is read from its binary files. Any other name is a folder
    `<name>` of idx files, in `data_dir` or in the folder that SOFA_FL_DATA names; each of the two
    may also be that folder itself.
    """
    given = given_folders(data_dir)
    if name == cifar10.NAME:
        return cifar10.read_cifar10(cifar10.find_cifar10(given))
    if name in PUBLISHED:
        folder = _find_published(name, given)
        stamps = tuple((folder / file).stat().st_mtime_ns for file in PUBLISHED[name].sums)
        return _read_published(name, folder, stamps)
    # A folder itself must bear the name: a misspelt `mnist` must not load whatever lies there.
    places = [base / name for base in given] + [b for b in given if b.resolve().name == name]
    for place in places:
        if name and place.is_dir():
            return read_folder(place)
    looked = ", ".join(map(str, places)) or "none, because data.dir and SOFA_FL_DATA are not set"
    raise DataError(
        f"unknown dataset {name!r}; known: {', '.join(sorted(PUBLISHED))}, and folders of idx "
        f"files (looked in {looked}); set data.dir to the folder that contains {name!r}"
    )


def read_folder(folder: Path) -> tuple[Arrays, Arrays]:
    """Training and test samples of a folder of idx files, recognized by their names.

    There must be one file each for `*train-images*`, `*train-labels*`, `*test-images*` (or
    `*t10k-images*`) and `*test-labels*` (or `*t10k-labels*`), gzipped or not.
    """
    train, test = (
        _read_pair(_only_file(folder, images), _only_file(folder, labels), mean=0.5, std=0.5)
        for images, labels in (TRAIN, TEST)
    )
    return train, test


def given_folders(data_dir: Path | None) -> list[Path]:
    """The folders to look in: the one given, then the one that SOFA_FL_DATA names."""
    folders = []
    if data_dir is not None:
        folders.append(data_dir.expanduser())
        if not folders[0].is_dir():
            raise DataError(
                f"data.dir must be a folder, but {data_dir} is not; create it, or remove data.dir"
            )
    if variable := os.environ.get("SOFA_FL_DATA"):
        folders.append(Path(variable).expanduser())
    return folders


def _find_published(name: str, given: list[Path]) -> Path:
    files = PUBLISHED[name].sums
    places = [place for base in given for place in (base / name, base)]
    for place in [*places, PACKAGE_FOLDER / name]:
        missing = [file for file in files if not (place / file).is_file()]
        if not missing:
            return place
        # Some of the files, or unpacked ones: somebody meant this folder.
        if any((place / file).is_file() for gz in files for file in (gz, gz.removesuffix(".gz"))):
            raise DataError(
                f"{name} in {place} must have {len(files)} gzipped files, but lacks "
                f"{', '.join(missing)}; complete the folder, or move it away"
            )
    cache = cache_folder(name)
    if all((cache / file).is_file() for file in files):
        return cache
    if not PUBLISHED[name].mirrors:
        raise DataError(
            f"{name} should be in {PACKAGE_FOLDER / name}, but its files are missing; reinstall "
            f"sofa-fl, or put {', '.join(files)} there"
        )
    return download(name, cache)


@lru_cache(maxsize=2)
def _read_published(name: str, folder: Path, stamps: tuple[int, ...]) -> tuple[Arrays, Arrays]:
    """Remembered, for one run after the other; files that have changed are read again."""
    dataset = PUBLISHED[name]
    train, test = (
        _read_pair(folder / images, folder / labels, dataset.mean, dataset.std, dataset)
        for images, labels in ((TRAIN_IMAGES, TRAIN_LABELS), (TEST_IMAGES, TEST_LABELS))
    )
    for array in (train.x, train.y, test.x, test.y):
        array.flags.writeable = False  # whoever asks next gets the same
    return train, test


def _only_file(folder: Path, patterns: tuple[str, ...]) -> Path:
    found = sorted(path for pattern in patterns for path in folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise DataError(
            f"{folder} must contain exactly one file named {' or '.join(patterns)}, found {names}; "
            "add one, or move the others away"
        )
    return found[0]


def _read_pair(
    images: Path, labels: Path, mean: float, std: float, dataset: Published | None = None
) -> Arrays:
    sums = dataset.sums if dataset else {}
    x, y = read_idx(images, sums.get(images.name)), read_idx(labels, sums.get(labels.name))
    if x.dtype != np.uint8 or x.ndim not in (3, 4) or not x.size:
        raise DataError(
            f"{images} must contain uint8 images of shape (n, height, width) or (n, channels, "
            f"height, width), got {x.dtype} of shape {x.shape}"
        )
    if y.dtype.kind not in "iu" or y.shape != (len(x),) or y.min() < 0:
        raise DataError(
            f"{labels} must contain one label, at least 0, for each of the {len(x)} images in "
            f"{images.name}, got {y.dtype} of shape {y.shape}"
        )
    x = x[:, None] if x.ndim == 3 else x
    return Arrays(x, y.astype(np.int64), scale=1 / (255 * std), shift=-mean / std)


def read_idx(path: Path, sha256: str | None = None) -> NDArray[Any]:
    """Read one idx file, the format of MNIST and its relatives, gzipped or not.

    `sha256`, where given, is that of the file as it lies on the disk.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if sha256 is not None and (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataError(
            f"{path} is not the published file: its SHA-256 is {found}, not {sha256}; replace it"
        )
    if content.startswith(GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{path} is a damaged gzip file ({error}); replace it") from error
    return _parse(content, path)


def _parse(content: bytes, path: Path) -> NDArray[Any]:
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in DTYPES:
        raise DataError(
            f"{path} is not an idx file: it must begin with two zero bytes, a known type and the "
            f"number of dimensions, but begins with 0x{content[:4].hex()}"
        )
    dtype, num_dims = np.dtype(DTYPES[content[2]]), content[3]
    start = 4 + 4 * num_dims
    if num_dims == 0 or len(content) < start:
        raise DataError(
            f"the header of {path} is incomplete: {num_dims} dimensions need {start} bytes (and at "
            f"least one dimension), but it has {len(content)}; replace the file"
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", num_dims, offset=4))
    # Python integers: a corrupt header must not overflow, nor allocate what it claims.
    needed, found = math.prod(shape) * dtype.itemsize, len(content) - start
    if needed != found:
        raise DataError(
            f"{path} is truncated or corrupt: shape {shape} needs {needed} bytes of values, but it "
            f"has {found}; replace the file"
        )
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))
