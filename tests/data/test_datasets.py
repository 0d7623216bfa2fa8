"""Where datasets are found, that published ones are checked, and any folder of idx files."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from sofa_fl.data import datasets
from sofa_fl.data.datasets import load_dataset
from sofa_fl.data.download import PUBLISHED, TEST_LABELS, TRAIN_IMAGES, Published
from sofa_fl.errors import DataError
from tests.data.idx_files import write_idx


@pytest.fixture(autouse=True)
def _no_data_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFA_FL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_folder(folder: Path, value: int = 0, suffix: str = ".gz", test: str = "t10k") -> Path:
    """Three training and two test images whose pixels are all `value`."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in (("train", 3), (test, 2)):
        images = np.full((size, 28, 28), value, dtype=np.uint8)
        write_idx(folder / f"{split}-images-idx3-ubyte{suffix}", images)
        labels = np.arange(size, dtype=np.uint8)
        write_idx(folder / f"{split}-labels-idx1-ubyte{suffix}", labels)
    return folder


def publish(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "tiny") -> None:
    """Make the folder's files the published ones of `name`, without mirrors."""
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    monkeypatch.setitem(PUBLISHED, name, Published(sums, mean=0.25, std=0.5))


def test_mnist_ships_with_the_package() -> None:
    train, test = load_dataset("mnist")
    assert train.x.shape == (60_000, 1, 28, 28)
    assert test.x.shape == (10_000, 1, 28, 28)
    assert train.x.dtype == np.uint8
    assert train.y.dtype == np.int64
    assert (train.num_classes, test.num_classes) == (10, 10)
    for pixel in (0, 255):
        assert pixel * train.scale + train.shift == pytest.approx((pixel / 255 - 0.1307) / 0.3081)
    seen = train.x[:5000] * train.scale + train.shift
    assert (seen.mean(), seen.std()) == pytest.approx((0, 1), abs=0.02)


def test_what_was_read_is_remembered_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "tiny", value=3)
    publish(folder, monkeypatch)
    train, _ = load_dataset("tiny", tmp_path)
    assert load_dataset("tiny", tmp_path)[0] is train
    assert not train.x.flags.writeable
    write_folder(folder, value=4)
    with pytest.raises(DataError, match="SHA-256"):
        load_dataset("tiny", tmp_path)


def test_fashion_mnist_is_scaled_by_its_own_statistics() -> None:
    fashion = PUBLISHED["fashion-mnist"]
    assert (fashion.mean, fashion.std) == (0.2860, 0.3530)
    assert len(fashion.sums) == 4
    assert fashion.mirrors


def test_order_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All places hold a damaged file; the first is complained about, and then emptied."""
    publish(write_folder(tmp_path / "published"), monkeypatch)
    monkeypatch.setattr(datasets, "PACKAGE_FOLDER", tmp_path / "package")
    monkeypatch.setenv("SOFA_FL_DATA", str(tmp_path / "env"))
    places = [tmp_path / place for place in ("dir/tiny", "dir", "env/tiny", "env", "package/tiny")]
    places.append(tmp_path / "cache/sofa-fl/tiny")
    for place in places:
        shutil.copytree(tmp_path / "published", place, dirs_exist_ok=True)
        (place / TRAIN_IMAGES).write_bytes(b"damaged")
    for place in places:
        with pytest.raises(DataError, match=f"^{place / TRAIN_IMAGES} is not the published file"):
            load_dataset("tiny", tmp_path / "dir")
        shutil.copy(tmp_path / "published" / TRAIN_IMAGES, place)
        assert len(load_dataset("tiny", tmp_path / "dir")[0]) == 3
        for path in place.glob("*.gz"):
            path.unlink()
    with pytest.raises(DataError, match=r"should be in .*package/tiny"):
        load_dataset("tiny", tmp_path / "dir")


@pytest.mark.parametrize("change", ["damage", "other"])
def test_published_files_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    publish(write_folder(tmp_path / "tiny"), monkeypatch)
    if change == "damage":
        path = tmp_path / "tiny" / TRAIN_IMAGES
        path.write_bytes(path.read_bytes()[:-1])
    else:
        write_folder(tmp_path / "tiny", value=1)
    with pytest.raises(DataError, match=rf"{TRAIN_IMAGES} is not the published file"):
        load_dataset("tiny", tmp_path)


def test_incomplete_and_unpacked_folders_are_not_passed_over(tmp_path: Path) -> None:
    (write_folder(tmp_path / "mnist") / TEST_LABELS).unlink()
    with pytest.raises(DataError, match=rf"mnist in .* lacks {TEST_LABELS};"):
        load_dataset("mnist", tmp_path)
    write_folder(tmp_path / "plain" / "mnist", suffix="")
    with pytest.raises(DataError, match=rf"must have 4 gzipped files, but lacks {TRAIN_IMAGES}, "):
        load_dataset("mnist", tmp_path / "plain")


@pytest.mark.parametrize(("suffix", "test"), [("", "test"), (".gz", "t10k")])
def test_any_folder_of_idx_files(tmp_path: Path, suffix: str, test: str) -> None:
    write_folder(tmp_path / "plants", value=255, suffix=suffix, test=test)
    for folder in (tmp_path, tmp_path / "plants"):
        train, held = load_dataset("plants", folder)
        assert train.x.shape == (3, 1, 28, 28)
        assert held.y.tolist() == [0, 1]
        assert train.x[0, 0, 0, 0] * train.scale + train.shift == pytest.approx(1.0)
        assert train.shift == pytest.approx(-1.0)


def test_folder_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "plants")
    monkeypatch.setenv("SOFA_FL_DATA", str(tmp_path))
    assert len(load_dataset("plants")[0]) == 3


def test_a_misspelt_name_does_not_load_what_lies_there(tmp_path: Path) -> None:
    write_folder(tmp_path / "mnist")
    with pytest.raises(DataError, match="unknown dataset 'minst'") as caught:
        load_dataset("minst", tmp_path / "mnist")
    for part in ("fashion-mnist, mnist", str(tmp_path / "mnist/minst"), "data.dir"):
        assert part in str(caught.value)
    with pytest.raises(DataError, match="SOFA_FL_DATA are not set"):
        load_dataset("minst")
    with pytest.raises(DataError, match="unknown dataset ''"):
        load_dataset("", tmp_path / "mnist")


def test_given_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.dir must be a folder"):
        load_dataset("mnist", tmp_path / "nothing")


def test_ambiguous_or_missing_files_of_a_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "plants")
    shutil.copy(folder / TRAIN_IMAGES, folder / "more-train-images")
    with pytest.raises(DataError, match=rf"found more-train-images, {TRAIN_IMAGES}"):
        load_dataset("plants", tmp_path)
    (folder / "more-train-images").unlink()
    (folder / TEST_LABELS).unlink()
    with pytest.raises(DataError, match=r"\*test-labels\* or \*t10k-labels\*, found none"):
        load_dataset("plants", tmp_path)


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (TEST_LABELS, np.zeros(3, np.uint8), r"each of the 2 images .*shape \(3,\)"),
        (TEST_LABELS, np.zeros(2, np.float32), "got float32"),
        (TEST_LABELS, np.array([0, -1], np.int8), "at least 0"),
        (TRAIN_IMAGES, np.zeros((3, 28), np.uint8), r"got uint8 of shape \(3, 28\)"),
        (TRAIN_IMAGES, np.zeros((3, 28, 28), np.int16), "must contain uint8 images"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, file: str, values: np.ndarray, message: str) -> None:
    write_idx(write_folder(tmp_path / "plants") / file, values)
    with pytest.raises(DataError, match=message):
        load_dataset("plants", tmp_path)
