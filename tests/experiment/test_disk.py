"""Files whole or not at all: in which order things reach the disk, and what a full one leaves."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage import disk
from sofa_fl.experiment.storage.checkpoint import check_file, pack, save
from sofa_fl.experiment.storage.disk import DamagedError, write_text
from sofa_fl.experiment.storage.run_folder import RunFolder
from tests.experiment.faults import SAVE_FILE, full_disk, small_files


def test_text_is_written_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "one")
    write_text(tmp_path / "a.txt", "two ü")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "two ü"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


WRITERS: dict[str, Callable[[Path], Any]] = {
    "text": lambda path: write_text(path / "a.txt", "one"),
    "config": lambda path: RunFolder.create(path, {"seed": 3}),
    "checkpoint": lambda path: save(path / "a.safetensors", pack(state=torch.ones(9))),
    "event": lambda path: RunFolder(path).append({"round": 0}),
}


def deeds(patch: pytest.MonkeyPatch) -> list[str]:
    """What is done to the disk from now on."""
    done: list[str] = []
    write, save = disk.write_all, save_file
    flush, rename = os.fsync, Path.replace

    def written(file: Any, data: bytes) -> None:
        write(file, data)
        done.append("write")

    def saved(*args: Any) -> None:
        save(*args)
        done.append("write")

    def flushed(file: int) -> None:
        flush(file)
        done.append("flush folder" if os.path.isdir(f"/proc/self/fd/{file}") else "flush file")

    def renamed(path: Path, target: Path) -> Path:
        done.append("rename")
        return rename(path, target)

    patch.setattr(disk, "write_all", written)
    patch.setattr(SAVE_FILE, saved)
    patch.setattr(os, "fsync", flushed)
    patch.setattr(Path, "replace", renamed)
    return done


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_new_is_on_disk_before_its_name_and_the_name_before_it_is_told(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves a file that has its name and nothing in it."""
    done = deeds(monkeypatch)
    WRITERS[writer](tmp_path)
    expected = ["write", "flush file", "rename", "flush folder"]
    if writer == "event":
        expected.remove("rename")  # the file grows; what is torn is cut off
    if writer == "config":
        expected.insert(0, "flush folder")  # the parent, which has the folder's name
    assert done == expected


def test_a_checkpoint_that_finds_no_space_leaves_the_others(tmp_path: Path) -> None:
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    state = {"a": torch.randn(50), "b": np.arange(9)}
    save(old, pack(state=state))
    size = old.stat().st_size
    for room in [0, 1, size - 1, *random.Random(1).sample(range(size), 20)]:
        with (
            full_disk("new.safetensors", room),
            pytest.raises(RunError, match=r"new\.safetensors: No space left on device$"),
        ):
            save(new, pack(state=state))
        check_file(old)
        assert [path.name for path in tmp_path.iterdir()] == [old.name]


@pytest.mark.parametrize("writer", ["text", "event"])
def test_what_finds_no_space_changes_nothing(writer: str, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path)
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    for room in range(len(before)):
        with (
            full_disk(file.name, room),
            pytest.raises(RunError, match=rf"^cannot write {file}: No space left on device$"),
        ):
            WRITERS[writer](tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [file.name]
        assert file.read_bytes() == before


@pytest.mark.parametrize("writer", WRITERS)
def test_what_the_system_refuses_to_write(writer: str, tmp_path: Path) -> None:
    """A real refusal in the middle of a write, by the limit on the size of files."""
    with small_files(2), pytest.raises(RunError, match=r"cannot write .*: File too large$"):
        WRITERS[writer](tmp_path)
    assert all(path.stat().st_size == 0 for path in tmp_path.iterdir())
    WRITERS[writer](tmp_path)


def test_a_flush_that_fails_is_a_run_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems find out only then."""

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    for writer in WRITERS.values():
        monkeypatch.setattr(os, "fsync", refuse)
        with pytest.raises(RunError, match=r"cannot write .*: No space left on device$"):
            writer(tmp_path)
        monkeypatch.undo()
        assert all(path.stat().st_size == 0 for path in tmp_path.iterdir())


def test_any_flipped_bit_of_a_checkpoint_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    state = {"model": torch.randn(40), "rows": np.arange(5)}
    save(file, pack(state=state))
    check_file(file)
    whole = file.read_bytes()
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 1 << at % 8
        file.write_bytes(broken)
        with pytest.raises(DamagedError, match=r"a\.safetensors is damaged: "):
            check_file(file)
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        with pytest.raises(DamagedError, match=r"a\.safetensors is damaged"):
            check_file(file)
    file.write_bytes(whole + b"\0")
    with pytest.raises(DamagedError):
        check_file(file)
    file.write_bytes(whole)
    check_file(file)
