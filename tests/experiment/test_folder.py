"""The run folder: torn lines, cuts, and which checkpoints are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sofa_fl.errors import RunError
from sofa_fl.experiment.folder import RunFolder, write_text


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
    (tmp_path / "config.yaml.partial").write_text("seed: ")
    folder = RunFolder.create(tmp_path, {"seed": 4})
    assert yaml.safe_load(folder.config_file.read_text()) == {"seed": 4}
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


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
    length = folder.append({"round": 1})
    with folder.events_file.open("a") as file:
        file.write(torn)
    assert list(folder.events()) == [{"round": 0}, {"round": 1}]
    folder.cut(length)
    folder.append({"round": 2})
    assert [event["round"] for event in folder.events()] == [0, 1, 2]


def test_cutting_back(folder: RunFolder) -> None:
    lengths = [folder.append({"round": n}) for n in range(4)]
    folder.cut(lengths[1])
    assert [event["round"] for event in folder.events()] == [0, 1]
    with pytest.raises(RunError, match="shorter than its checkpoint says"):
        folder.cut(lengths[2])
    folder.events_file.unlink()
    with pytest.raises(RunError, match="shorter than its checkpoint says"):
        folder.cut(lengths[0])


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
    folder.checkpoint(3).with_suffix(".partial").touch()
    (folder.checkpoints / "round-x.safetensors").touch()
    assert folder.saved_rounds() == []


def test_text_is_written_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "one")
    write_text(tmp_path / "a.txt", "two ü")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "two ü"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
