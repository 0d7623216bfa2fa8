"""CIFAR-10 from binary files in the official form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sofa_fl.data.cifar10 import FOLDER, ROW, ROWS, TEST_FILES, TRAIN_FILES
from sofa_fl.data.datasets import load_dataset
from sofa_fl.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six files; a red pixel says which file an image is of."""
    (tmp_path / FOLDER).mkdir()
    for number, name in enumerate((*TRAIN_FILES, *TEST_FILES)):
        rows = np.zeros((ROWS, ROW), dtype=np.uint8)
        rows[:, 0] = np.arange(ROWS) % 10
        rows[:, 1] = number
        rows[:, ROW - 1] = 255
        (tmp_path / FOLDER / name).write_bytes(rows.tobytes())
    return tmp_path


def test_images_and_labels_are_where_they_belong(folder: Path) -> None:
    train, test = load_dataset("cifar-10", folder)
    assert train.x.shape == (50_000, 3, 32, 32)
    assert train.x[::ROWS, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert test.x[:, 0, 0, 0].tolist() == [5] * ROWS
    assert (train.x[:, 2, 31, 31] == 255).all()
    assert train.y[:12].tolist() == [*range(10), 0, 1]
    again, _ = load_dataset("cifar-10", folder / FOLDER)
    assert (again.y == train.y).all()


def test_what_is_missing_or_cut_is_said(folder: Path) -> None:
    file = folder / FOLDER / TEST_FILES[0]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match="must have 30,730,000 bytes, got 30,729,999"):
        load_dataset("cifar-10", folder)
    file.unlink()
    with pytest.raises(DataError, match=r"cifar-10 needs data_batch_1.bin, .*set data.dir"):
        load_dataset("cifar-10", folder)
