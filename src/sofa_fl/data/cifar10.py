"""CIFAR-10 from its official binary files, which a user brings: they are not in the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sofa_fl.data.federated_data import Arrays
from sofa_fl.errors import DataError

NAME = "cifar-10"
FOLDER = "cifar-10-batches-bin"
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILES = ("test_batch.bin",)
SHAPE = (3, 32, 32)
ROW = 1 + 3 * 32 * 32  # a label, and the pixels of each colour in turn
ROWS = 10_000  # of a file
MEAN, STD = 0.4734, 0.2516  # of the training pixels of all colours, of a range of 0 to 1


def find_cifar10(given: list[Path]) -> Path:
    """The folder that holds the six files: one of `given`, or a folder of the usual name in it."""
    places = [place for base in given for place in (base, base / FOLDER, base / NAME)]
    for place in places:
        if all((place / file).is_file() for file in (*TRAIN_FILES, *TEST_FILES)):
            return place
    looked = ", ".join(map(str, places)) or "none, because data.dir and SOFA_FL_DATA are not set"
    raise DataError(
        f"{NAME} needs {', '.join((*TRAIN_FILES, *TEST_FILES))} (looked in {looked}); set data.dir "
        f"to the folder that contains {FOLDER}"
    )


def read_cifar10(folder: Path) -> tuple[Arrays, Arrays]:
    """Training and test samples; images are uint8, of shape (n, 3, 32, 32)."""
    return _read(folder, TRAIN_FILES), _read(folder, TEST_FILES)


def _read(folder: Path, files: tuple[str, ...]) -> Arrays:
    parts = []
    for name in files:
        found = np.fromfile(folder / name, dtype=np.uint8)
        if len(found) != ROWS * ROW:
            raise DataError(
                f"{folder / name} must have {ROWS * ROW:,} bytes, got {len(found):,}; unpack it "
                "again"
            )
        parts.append(found.reshape(ROWS, ROW))
    rows = np.concatenate(parts)
    labels = rows[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise DataError(f"{folder} must have labels from 0 to 9, got {labels.max()}")
    images = rows[:, 1:].reshape(-1, *SHAPE)
    return Arrays(images, labels, scale=1 / (255 * STD), shift=-MEAN / STD)
