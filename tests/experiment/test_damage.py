"""A run whose files were damaged goes on from what is whole, says so, and ends the same."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from sofa_fl.api.runs import resume, run
from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.events import Event
from sofa_fl.experiment.storage.run_folder import RunFolder
from tests.experiment.cases import events_of, own_data, summary_of, tiny
from tests.experiment.faults import full_disk, small_files

ROUNDS = 4
Damage = Callable[[Path, random.Random], None]


@pytest.fixture
def draws(request: pytest.FixtureRequest) -> random.Random:
    """Other draws for every test, the same every time."""
    return random.Random(request.node.name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tiny(tmp_path_factory.mktemp("runs") / "whole", rounds=ROUNDS), data=own_data()).run


class StoppedError(BaseException):
    """Stands for what ends a run, as Ctrl-C does; an observer's own error would not."""


def run_until(out: Path, round: int, **values: Any) -> None:
    def stop(event: Event) -> None:
        if event.get("round") == round:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(tiny(out, rounds=ROUNDS, **values), data=own_data(), observers=[stop])


@pytest.fixture(scope="module")
def after_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    run_until(out, 3)
    return out


@pytest.fixture
def stopped(after_three: Path, tmp_path: Path) -> RunFolder:
    """A run that has three rounds behind it: with checkpoints of the second and the third."""
    return RunFolder(Path(shutil.copytree(after_three, tmp_path / "run")))


def go_on(run: Path) -> Event:
    """Resume; the first event."""
    seen: list[Event] = []
    resume(run, data=own_data(), observers=[seen.append])
    return seen[0]


def assert_the_same(run: Path, whole: Path) -> None:
    assert events_of(run) == events_of(whole)
    assert summary_of(run) == summary_of(whole)
    assert not list(run.rglob("*.partial"))


def flip(file: Path, draws: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
    file.write_bytes(data)


def truncate(file: Path, draws: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: draws.randrange(file.stat().st_size)])


def blank(file: Path, _: random.Random) -> None:
    file.write_bytes(bytes(file.stat().st_size))


DAMAGES: list[Damage] = [flip] * 4 + [truncate] * 3 + [blank]


def test_what_is_whole_needs_no_word(stopped: RunFolder, whole: Path) -> None:
    first = go_on(stopped.path)
    assert (first["round"], first["note"]) == (3, "")
    assert_the_same(stopped.path, whole)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    damage: Damage, stopped: RunFolder, whole: Path, draws: random.Random
) -> None:
    damage(stopped.checkpoint(3), draws)
    first = go_on(stopped.path)
    assert first["round"] == 2
    assert first["note"].startswith(f"the checkpoint {stopped.checkpoint(3)} is damaged: ")
    assert first["note"].endswith("; continuing from round 2")
    assert_the_same(stopped.path, whole)


def test_a_missing_checkpoint_gives_way_to_the_one_before(stopped: RunFolder, whole: Path) -> None:
    stopped.checkpoint(3).unlink()
    first = go_on(stopped.path)
    expected = f"the checkpoint {stopped.checkpoint(3)} is missing; continuing from round 2"
    assert (first["round"], first["note"]) == (2, expected)
    assert_the_same(stopped.path, whole)


def test_rounds_between_checkpoints_are_not_missing(tmp_path: Path, whole: Path) -> None:
    run_until(tmp_path / "run", 3, save_every=2)
    first = go_on(tmp_path / "run")
    assert (first["round"], first["note"]) == (2, "")
    assert_the_same(tmp_path / "run", whole)


def test_the_one_that_is_whole_is_not_written_over_first(
    stopped: RunFolder, whole: Path, draws: random.Random
) -> None:
    """Else a stop right after would leave none."""
    flip(stopped.checkpoint(3), draws)
    with full_disk("round-00003", 100), pytest.raises(RunError, match="cannot write"):
        go_on(stopped.path)
    assert stopped.saved_rounds() == [2]
    go_on(stopped.path)
    assert_the_same(stopped.path, whole)


def unlink(file: Path, _: random.Random) -> None:
    file.unlink()


def test_none_that_is_whole_is_one_sentence(stopped: RunFolder, draws: random.Random) -> None:
    for damage in (truncate, unlink):
        for round in (2, 3):
            damage(stopped.checkpoint(round), draws)
        before = {path: path.read_bytes() for path in stopped.path.rglob("*.*")}
        with pytest.raises(RunError) as error:
            go_on(stopped.path)
        assert "has no checkpoint left to resume from: the checkpoint" in str(error.value)
        again = f"start over with 'sofa-fl run {stopped.config_file} --out DIR'"
        assert str(error.value).endswith(again)
        assert "\n" not in str(error.value)
        assert {path: path.read_bytes() for path in stopped.path.rglob("*.*")} == before


def test_a_warm_up_that_is_damaged_is_made_again(
    tmp_path: Path, whole: Path, draws: random.Random
) -> None:
    run_until(tmp_path / "run", 0)
    flip(RunFolder(tmp_path / "run").checkpoint(0), draws)
    first = go_on(tmp_path / "run")
    assert first["round"] is None
    assert "is damaged" in first["note"]
    assert first["note"].endswith("; starting over")
    assert_the_same(tmp_path / "run", whole)


@pytest.mark.parametrize("damage", [blank, truncate])
@pytest.mark.parametrize("line", [3, 2])
def test_events_that_are_torn_or_wrong_are_written_again(
    line: int, damage: Damage, stopped: RunFolder, whole: Path, draws: random.Random
) -> None:
    """A checkpoint holds the line of its own round, and the one before that of the round before."""
    lines = stopped.events_file.read_bytes().splitlines(keepends=True)
    part = stopped.path / "part"
    part.write_bytes(lines[line])
    damage(part, draws)
    rest = lines[line + 1 :] if damage is blank else []
    stopped.events_file.write_bytes(b"".join([*lines[:line], part.read_bytes(), *rest]))
    part.unlink()
    first = go_on(stopped.path)
    assert first["round"] == line
    assert bool(first["note"]) == (line < 3)
    assert_the_same(stopped.path, whole)


def test_no_events_at_all_are_one_sentence(stopped: RunFolder) -> None:
    stopped.events_file.write_bytes(b"")
    with pytest.raises(RunError, match="shorter than its checkpoint says"):
        go_on(stopped.path)
    assert stopped.saved_rounds() == [2, 3]


FILES = {"config": 1, "event": 3, "checkpoint": 6, "summary": 2}  # and how often each


@pytest.mark.parametrize("real", [False, True], ids=["no space", "too large"])
@pytest.mark.parametrize("what", [what for what, times in FILES.items() for _ in range(times)])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on(
    what: str, real: bool, tmp_path: Path, whole: Path, draws: random.Random
) -> None:
    """At a random byte of a random round's file; `real` is the system's own limit."""
    out, round = tmp_path / "run", draws.randrange(ROUNDS + 1)
    folder, model = RunFolder(out), RunFolder(whole)
    file = {
        "config": folder.config_file,
        "event": folder.events_file,
        "checkpoint": folder.checkpoint(round).with_suffix(""),
        "summary": folder.summary_file,
    }[what]
    size = {
        "event": len(model.events_file.read_bytes()),
        "checkpoint": model.checkpoint(ROUNDS).stat().st_size // 2,
    }.get(what, 500)
    room = draws.randrange(size)
    fault = small_files(room) if real else full_disk(file.name, room)
    with fault, pytest.raises(RunError) as error:
        run(tiny(out, rounds=ROUNDS), data=own_data())
    reason = "File too large" if real else "No space left on device"
    assert str(error.value).startswith("cannot write ")
    assert str(error.value).endswith(reason)
    if not real:
        assert str(file) in str(error.value)
    assert not list(out.rglob("*.partial"))
    assert [event["round"] for event in folder.events()] == list(range(folder.num_recorded()))
    if folder.config_file.exists():
        go_on(out)
    else:
        run(tiny(out, rounds=ROUNDS), data=own_data())
    assert_the_same(out, whole)


def test_a_checkpoint_of_the_first_version_is_gone_on_from(stopped: RunFolder, whole: Path) -> None:
    """It has the length and a checksum of the events, and a checksum of the file's bytes."""
    file = stopped.checkpoint(3)
    with safe_open(file, framework="np") as opened:
        metadata = opened.metadata()
    progress = {"events_length": 1, "events_sum": 2, **json.loads(metadata["progress"])}
    old = {**metadata, "progress": json.dumps(progress), "checksum": "0123abcd"}
    del old["crc32"]
    save_file(load_file(file), file, old)
    assert go_on(stopped.path)["round"] == 3
    assert_the_same(stopped.path, whole)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("dump", [pickle.dump, torch.save])
def test_a_pickle_in_place_of_a_checkpoint_is_never_loaded(
    dump: Callable[..., None], stopped: RunFolder, whole: Path, tmp_path: Path
) -> None:
    with stopped.checkpoint(3).open("wb") as file:
        dump(Trap(tmp_path / "mark"), file)
    assert go_on(stopped.path)["round"] == 2
    assert not (tmp_path / "mark").exists()
    assert_the_same(stopped.path, whole)


def test_no_run_unpickles_anything(
    stopped: RunFolder, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was unpickled")

    for module, name in ((pickle, "load"), (pickle, "loads"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    go_on(stopped.path)
    assert_the_same(stopped.path, whole)
