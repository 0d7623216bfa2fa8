"""Bytes that are written in slices by several threads: all of them, on disk, or an error."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage import disk
from sofa_fl.experiment.storage.checkpoint import check_file, load, pack, save
from sofa_fl.experiment.storage.disk import create, write_checked
from tests.experiment.faults import small_files

DATA = np.random.default_rng(0).bytes(1001)
NUMBERS = torch.arange(5000.0)


@pytest.fixture(params=["whole", "slices"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the few bytes of a test count as many."""
    monkeypatch.setattr(disk, "SLICE", 64)
    monkeypatch.setattr(disk, "LARGE", 64 if request.param == "slices" else 1 << 40)
    return str(request.param)


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "SLICE", 4096)
    monkeypatch.setattr(disk, "LARGE", 4096)


@pytest.mark.parametrize("num_bytes", [0, 1, 63, 64, 65, 128, 1001])
def test_bytes_are_written_and_checked(num_bytes: int, size: str, tmp_path: Path) -> None:
    data = memoryview(DATA)[:num_bytes]
    with create(tmp_path / "file") as file:
        file.write(b"before")
        found = write_checked(file, data, zlib.crc32(b"before"))
        file.write(b"after")
    assert (tmp_path / "file").read_bytes() == b"before" + data + b"after"
    assert found == zlib.crc32(b"before" + data)


def test_writes_that_take_a_part_go_on(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: plain(file, data[:7], at))
    with create(tmp_path / "file") as file:
        assert write_checked(file, memoryview(DATA), 0) == zlib.crc32(DATA)
    assert (tmp_path / "file").read_bytes() == DATA


@pytest.mark.usefixtures("sliced")
def test_a_checkpoint_in_slices_is_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, spare = (tmp_path / f"{name}.safetensors" for name in ("one", "other", "spare"))
    spare.write_bytes(DATA * 50)  # longer
    save(one, pack(state=NUMBERS), spare)
    monkeypatch.setattr(disk, "LARGE", 1 << 40)
    save(other, pack(state=NUMBERS))
    assert one.read_bytes() == other.read_bytes()
    check_file(one)
    assert torch.equal(load(one, "state", torch.Tensor), NUMBERS)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("what", ["write", "flush", "system"])
def test_an_error_of_any_slice_is_the_checkpoints(
    what: str, spare: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, older = tmp_path / "old.safetensors", tmp_path / "older.safetensors"
    save(old, pack(state=NUMBERS))
    save(older, pack(state=-NUMBERS))
    plain = os.pwrite

    def refuse(file: int, data: memoryview, place: int) -> int:
        if place > 9000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(file, data, place)

    def refuse_to_flush(_file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    if what == "write":
        monkeypatch.setattr(os, "pwrite", refuse)
    if what == "flush":
        monkeypatch.setattr(disk, "_flush", refuse_to_flush)
    said = {"write": "No space left on device", "flush": "Input/output error"}
    with (
        small_files(9000 if what == "system" else 1 << 30),
        pytest.raises(RunError, match=f"{said.get(what, 'File too large')}$"),
    ):
        save(tmp_path / "new.safetensors", pack(state=NUMBERS), older if spare else None)
    check_file(old)
    assert {path.name for path in tmp_path.iterdir()} == {
        old.name,
        *([] if spare else [older.name]),
    }


@pytest.mark.usefixtures("sliced")
def test_every_slice_is_flushed_after_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    plain = os.pwrite

    def written(file: int, data: memoryview, place: int) -> int:
        done.append("write")
        return plain(file, data, place)

    monkeypatch.setattr(disk, "THREADS", 1)
    monkeypatch.setattr(os, "pwrite", written)
    monkeypatch.setattr(disk, "_flush", lambda _file: done.append("flush"))
    save(tmp_path / "a.safetensors", pack(state=NUMBERS))
    assert done == ["write", "flush"] * -(-NUMBERS.nbytes // 4096)
