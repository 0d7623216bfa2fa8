"""The run folder: torn lines, cuts, and which checkpoints are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import DamagedError, temporary_for
from sofa_fl.experiment.storage.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", {"seed": 3})


def test_a_new_folder(folder: RunFolder) -> None:
    assert (folder.path / "config.yaml").is_file()
    assert yaml.safe_load(folder.config_file.read_text()) == {"seed": 3}
    assert RunFolder.open(folder.path) == folder
    assert folder.saved_rounds() == []
    assert list(folder.events()) == []
    assert folder.summary() is None


def test_an_empty_folder_will_do_and_one_with_anything_will_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", {})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(RunError, match="is not empty; resume it with 'sofa-fl resume"):
        RunFolder.create(tmp_path / "full", {})
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes.txt"]


def test_a_kill_while_the_folder_was_made_is_no_hindrance(tmp_path: Path) -> None:
    temporary_for(tmp_path / "config.yaml").write_text("seed: ")
    with RunFolder(tmp_path).locked():
        folder = RunFolder.create(tmp_path, {"seed": 4})
    assert yaml.safe_load(folder.config_file.read_text()) == {"seed": 4}
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", ".lock"}


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_folder_that_cannot_be_made(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write the run folder .*: "):
        RunFolder.create(tmp_path / "file" / below, {})
    with pytest.raises(RunError, match="cannot write the run folder"):
        RunFolder.create(Path("/proc/sofa-fl"), {})


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(RunError, match=r"is not a run folder: it has no config\.yaml"):
            RunFolder.open(path)


def test_events_come_back_in_order(folder: RunFolder) -> None:
    lengths = [folder.append({"round": n, "name": "ü\n"}) for n in range(3)]
    assert lengths == sorted(lengths)
    assert folder.events_file.stat().st_size == lengths[-1]
    assert list(folder.events()) == [{"round": n, "name": "ü\n"} for n in range(3)]


@pytest.mark.parametrize("torn", ['{"rou', '{"round": 2}', "{"])
def test_a_torn_last_line_is_passed_over(folder: RunFolder, torn: str) -> None:
    folder.append({"round": 0})
    folder.append({"round": 1})
    mark = folder.mark()
    with folder.events_file.open("a") as file:
        file.write(torn)
    assert list(folder.events()) == [{"round": 0}, {"round": 1}]
    assert folder.num_recorded() == 2
    folder.cut(*mark)
    folder.append({"round": 2})
    assert [event["round"] for event in folder.events()] == [0, 1, 2]


def marks(folder: RunFolder, num: int) -> list[tuple[int, int]]:
    """Where the events end after none of them, one, two, and so on."""
    found = [folder.mark()]
    for round in range(num):
        folder.append({"round": round})
        found.append(folder.mark())
    return found


def test_cutting_back(folder: RunFolder) -> None:
    at = marks(folder, 4)
    folder.cut(*at[2])
    assert [event["round"] for event in folder.events()] == [0, 1]
    with pytest.raises(DamagedError, match="shorter than its checkpoint says"):
        folder.cut(*at[3])
    folder.cut(*at[0])
    assert list(folder.events()) == []
    with pytest.raises(DamagedError, match="shorter than its checkpoint says"):
        folder.cut(*at[1])


def test_only_what_is_whole_is_cut_back_to(folder: RunFolder) -> None:
    at = marks(folder, 3)
    text = folder.events_file.read_text().replace("1", "7")  # it is still JSON
    folder.events_file.write_text(text)
    with pytest.raises(DamagedError, match=r"events\.jsonl is damaged: its checksum"):
        folder.cut(*at[3])
    assert folder.events_file.read_text() == text
    folder.cut(*at[1])
    assert list(folder.events()) == [{"round": 0}]


def test_a_broken_line_in_the_middle_is_an_error(folder: RunFolder) -> None:
    folder.append({"round": 0})
    with folder.events_file.open("a") as file:
        file.write("not json\n")
    folder.append({"round": 1})
    with pytest.raises(RunError, match=r"events\.jsonl is damaged"):
        list(folder.events())


def test_the_newest_checkpoints_are_kept(folder: RunFolder) -> None:
    folder.checkpoints.mkdir(exist_ok=True)
    for round in (0, 1, 2, 10, 9, 100_000):
        folder.checkpoint(round).touch()
    assert folder.saved_rounds() == [0, 1, 2, 9, 10, 100_000]
    folder.forget(2)
    assert folder.saved_rounds() == [10, 100_000]
    folder.forget(5)
    assert folder.saved_rounds() == [10, 100_000]


def test_half_written_checkpoints_do_not_count(folder: RunFolder) -> None:
    folder.checkpoints.mkdir(exist_ok=True)
    temporary_for(folder.checkpoint(3)).touch()
    (folder.checkpoints / "round-x.safetensors").touch()
    assert folder.saved_rounds() == []


def test_a_mark_is_of_all_lines_however_often_it_is_taken(folder: RunFolder) -> None:
    assert folder.mark() == (0, 0)
    for round in range(3):
        folder.append({"round": round})
        assert folder.mark() == RunFolder(folder.path).mark(), "as one who reads it all"
    length, checksum = folder.mark()
    folder.append({"round": 3})
    folder.cut(length, checksum)
    assert folder.mark() == (length, checksum)


def test_lines_that_were_not_flushed_are_by_the_next_mark(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.append({"round": 0})
    flushed = list[int]()
    monkeypatch.setattr(os, "fsync", flushed.append)
    folder.append({"round": 1}, flush=False)
    folder.append({"round": 2}, flush=False)
    assert not flushed
    folder.mark()
    assert len(flushed) == 1
    folder.mark()
    assert len(flushed) == 1, "there is nothing new"
    assert [event["round"] for event in folder.events()] == [0, 1, 2]
