"""What a user sees of a full disk and of damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sofa_fl.experiment.storage.run_folder import RunFolder
from tests.cli.cases import Cli, assert_refused, files_in
from tests.experiment.cases import events_of, summary_of
from tests.experiment.faults import full_disk


@pytest.mark.parametrize("file", ["config.yaml", "events.jsonl", "round-00001", "summary.json"])
def test_a_full_disk_ends_a_run_that_can_be_resumed(
    file: str, cli: Cli, tiny: list[str], finished: Path, tmp_path: Path
) -> None:
    out = str(tmp_path / "run")
    with full_disk(file, 40):
        result = cli("run", *tiny, "--out", out, "--quiet")
    assert_refused(result, file, "No space left on device")
    again = ["run", *tiny, "--out", out] if file == "config.yaml" else ["resume", out]
    result = cli(*again, "--quiet")
    assert result.exit_code == 0, result.stderr
    assert events_of(tmp_path / "run") == events_of(finished)
    assert summary_of(tmp_path / "run") == summary_of(finished)


@pytest.mark.parametrize("length", [0, 7, 500, -100])
def test_a_damaged_checkpoint_is_told_and_the_run_goes_on(
    length: int, cli: Cli, run_folder: Path, finished: Path
) -> None:
    newest = RunFolder(run_folder).checkpoint(2)
    newest.write_bytes(newest.read_bytes()[:length])
    (run_folder / "summary.json").unlink()
    result = cli("resume", str(run_folder), "--json")
    assert result.exit_code == 0, result.stderr
    first = result.stderr.splitlines()[0]
    assert f"{newest} is damaged: " in first
    assert first.endswith("; continuing from round 1")
    assert json.loads(result.stdout)["client"] == summary_of(finished)["client"]


def test_no_checkpoint_that_is_whole(cli: Cli, run_folder: Path) -> None:
    for path in (run_folder / "checkpoints").iterdir():
        path.write_bytes(b"")
    before = files_in(run_folder)
    assert_refused(cli("resume", str(run_folder)), "has no checkpoint left to resume from")
    assert files_in(run_folder) == before


def test_a_picture_on_a_full_disk(cli: Cli, finished: Path, work_dir: Path) -> None:
    (work_dir / "tree.svg").write_text("old")
    with full_disk("tree.svg", 100):
        assert_refused(cli("tree", str(finished), "--svg", "tree.svg"), "No space left on device")
    assert [path.name for path in work_dir.iterdir()] == ["tree.svg"]
    assert (work_dir / "tree.svg").read_text() == "old"
