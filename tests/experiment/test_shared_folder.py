"""What others do in a run folder: run there as well, or leave links where files will be."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sofa_fl.api.runs import resume, run, run_or_resume
from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.checkpoint import pack, save
from sofa_fl.experiment.storage.disk import append_bytes, create, temporary_for, write_bytes
from sofa_fl.experiment.storage.run_folder import RunFolder
from tests.experiment.cases import events_of, own_data, tiny


def test_two_runs_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    """The second is told so in a sentence, whichever way it began; the first ends as always."""
    out, refused = tmp_path / "run", 0

    def begin_again(event: dict[str, object]) -> None:
        nonlocal refused
        if event["event"] != "round":
            return
        ways: list[Callable[[], object]] = [
            lambda: resume(out, data=own_data()),
            lambda: run(tiny(out), data=own_data()),
            lambda: run_or_resume(tiny(out), data=own_data()),
        ]
        for again in ways:
            with pytest.raises(
                RunError, match=r"^another process is running in .*; wait until it has"
            ):
                again()
            refused += 1

    run(tiny(out), data=own_data(), observers=[begin_again])
    rounds = [event["round"] for event in events_of(out)]
    assert rounds == list(range(len(rounds)))
    assert refused == 3 * len(rounds)
    assert resume(out, data=own_data()).run == out, "the lock has ended with the run"


def hold(folder: Path, ready: multiprocessing.synchronize.Event) -> None:
    with RunFolder(folder).locked():
        ready.set()
        multiprocessing.Event().wait()


def test_a_second_resume_exits_with_an_error(tmp_path: Path) -> None:
    """From the command line; and a killed process leaves no lock."""
    out = run(tiny(tmp_path / "run"), data=own_data()).run
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=hold, args=(out, ready))
    other.start()
    try:
        assert ready.wait(60)
        second = subprocess.run(
            [sys.executable, "-m", "sofa_fl", "resume", str(out)],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        other.kill()
        other.join()
    assert second.returncode != 0
    assert "another process is running in" in second.stderr
    assert "Traceback" not in second.stderr
    with RunFolder(out).locked():
        pass


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    path = tmp_path / "run" / "report.html"
    path.parent.mkdir()
    for name in ("report.html", "report.html.partial"):
        (path.parent / name).symlink_to(target)
    write_bytes(path, b"new")
    assert target.read_bytes() == b"precious"
    assert path.read_bytes() == b"new"
    assert not path.is_symlink()


def test_a_temporary_file_cannot_be_there_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert len({temporary_for(path) for _ in range(100)}) == 100
    for existing in (tmp_path / "there", tmp_path / "link"):
        if existing.name == "there":
            existing.touch()
        else:
            existing.symlink_to(tmp_path / "nowhere")
        with pytest.raises(FileExistsError):
            create(existing)
    assert not (tmp_path / "nowhere").exists()


def test_nothing_is_appended_to_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    (tmp_path / "log").symlink_to(target)
    with pytest.raises(RunError, match="cannot write"):
        append_bytes(tmp_path / "log", b"line")
    assert target.read_bytes() == b"precious"


def test_a_checkpoint_takes_the_place_of_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    (tmp_path / "new.safetensors").symlink_to(target)
    save(tmp_path / "new.safetensors", pack(state={"a": 1}))
    assert target.read_bytes() == b"precious"
    assert not (tmp_path / "new.safetensors").is_symlink()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RunError, match="cannot lock"), RunFolder(tmp_path).locked():
        raise AssertionError
    assert not (tmp_path / "nowhere").exists()


def test_rights_are_those_asked_for(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_bytes(tmp_path / "secret", b"", mode=0o600)
        write_bytes(tmp_path / "open", b"")
        save(tmp_path / "checkpoint", pack(state=torch.ones(9)))
    finally:
        os.umask(before)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o644
