"""The run folder: torn lines, cuts, and which checkpoints are kept."""

from __future__ import annotations

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
    for n in range(3):
        folder.append({"round": n, "name": "ü\n"})
    assert list(folder.events()) == [{"round": n, "name": "ü\n"} for n in range(3)]


@pytest.mark.parametrize("torn", ['{"rou', '{"round": 2}', "{"])
def test_a_torn_last_line_is_passed_over(folder: RunFolder, torn: str) -> None:
    folder.append({"round": 0})
    folder.append({"round": 1})
    with folder.events_file.open("a") as file:
        file.write(torn)
    assert list(folder.events()) == [{"round": 0}, {"round": 1}]
    assert folder.num_recorded() == 2
    folder.cut(2)
    folder.append({"round": 2})
    assert [event["round"] for event in folder.events()] == [0, 1, 2]


def test_cutting_back(folder: RunFolder) -> None:
    for round in range(4):
        folder.append({"round": round})
    folder.cut(2)
    assert [event["round"] for event in folder.events()] == [0, 1]
    with pytest.raises(DamagedError, match="shorter than its checkpoint says"):
        folder.cut(3)
    folder.cut(0)
    assert list(folder.events()) == []
    with pytest.raises(DamagedError, match="shorter than its checkpoint says"):
        folder.cut(1)


@pytest.mark.parametrize("bad", ["not json", '{"round": 7}', "[1]", ""])
def test_only_what_is_whole_is_cut_back_to(folder: RunFolder, bad: str) -> None:
    folder.append({"round": 0})
    with folder.events_file.open("a") as file:
        file.write(bad + "\n")
    folder.append({"round": 2})
    text = folder.events_file.read_text()
    with pytest.raises(DamagedError, match=r"events\.jsonl is damaged in line 2"):
        folder.cut(3)
    assert folder.events_file.read_text() == text
    folder.cut(1)
    assert list(folder.events()) == [{"round": 0}]


def test_events_are_not_appended_to_a_link(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    folder.events_file.symlink_to(tmp_path / "target")
    with pytest.raises(RunError, match="cannot write"):
        folder.append({"round": 0})
    assert (tmp_path / "target").read_text() == "precious"


@pytest.mark.parametrize("is_run", [True, False])
def test_what_a_kill_left_is_deleted_in_a_run_folder_only(is_run: bool, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {}) if is_run else RunFolder(tmp_path)
    left = folder.path / ".tmp3aB9xZ"  # as safetensors calls it
    left.touch()
    with folder.locked():
        assert left.exists() is not is_run


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
