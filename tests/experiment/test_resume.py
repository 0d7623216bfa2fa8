"""A run that was stopped, at whatever moment, ends as one that was not."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import yaml

from sofa_fl.errors import RunError
from sofa_fl.experiment import checkpoint, loop
from sofa_fl.experiment.checkpoint import Packed
from sofa_fl.experiment.folder import RunFolder
from sofa_fl.experiment.loop import resume, run
from tests.engine.cases import make_data
from tests.experiment.cases import METHODS, TINY, events_of, own_data, summary_of, tiny


class KilledError(Exception):
    """Stands for a kill."""


def killed(round: int, going: Callable[[], object]) -> None:
    """Stop what is `going` between a round's event and its checkpoint."""
    plain = checkpoint.save

    def save(path: Path, packed: Packed, spare: Path | None = None) -> None:
        if path.stem == f"round-{round:05d}":
            raise KilledError
        plain(path, packed, spare)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", save)
        with pytest.raises(KilledError):
            going()


@pytest.mark.parametrize("values", METHODS.values(), ids=METHODS)
def test_resumed_is_whole(values: dict[str, Any], tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "whole", **values), data=own_data()).run
    for round in range(4):
        cut = tmp_path / f"cut {round}"
        config = tiny(cut, **values)
        killed(round, partial(run, config, data=own_data()))
        assert len(events_of(cut)) == round + 1
        assert not (cut / "summary.json").exists()
        resume(cut, data=own_data())
        assert events_of(cut) == events_of(whole)
        assert summary_of(cut) == summary_of(whole)


def test_stopped_again_and_again(tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "whole"), data=own_data()).run
    cut = tmp_path / "cut"
    killed(0, lambda: run(tiny(cut), data=own_data()))
    for round in range(4):
        killed(round, lambda: resume(cut, data=own_data()))
    resume(cut, data=own_data())
    assert events_of(cut) == events_of(whole)
    assert summary_of(cut) == summary_of(whole)


def test_a_moved_run_goes_on_where_it_is(tmp_path: Path) -> None:
    killed(2, lambda: run(tiny(tmp_path / "here"), data=own_data()))
    shutil.move(tmp_path / "here", tmp_path / "there")
    result = resume(tmp_path / "there", data=own_data())
    assert result.summary["run"] == str(tmp_path / "there")
    assert not (tmp_path / "here").exists()


def test_a_run_that_has_ended_only_writes_its_summary_again(tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "run"), data=own_data()).run
    events, summary = events_of(whole), summary_of(whole)
    (whole / "summary.json").unlink()
    resume(whole, data=own_data())
    assert (events_of(whole), summary_of(whole)) == (events, summary)


def test_more_rounds_go_on_from_the_last(tmp_path: Path) -> None:
    constant = {"local": {**TINY["local"], "final_rate": 1}}  # else it hangs on their number
    long = run(tiny(tmp_path / "long", rounds=5, **constant), data=own_data()).run
    short = run(tiny(tmp_path / "short", **constant), data=own_data()).run
    config = yaml.safe_load((short / "config.yaml").read_text())
    (short / "config.yaml").write_text(yaml.safe_dump({**config, "rounds": 5}))
    resume(short, data=own_data())
    assert summary_of(short) == summary_of(long)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    killed(3, lambda: run(tiny(tmp_path / "run"), data=own_data()))
    return tmp_path / "run"


def test_other_data_are_refused(stopped: Path) -> None:
    before = (stopped / "events.jsonl").read_bytes()
    for other in (own_data(seed=8), make_data(), None):
        with pytest.raises(RunError, match="was made with other data or another network"):
            resume(stopped, data=other)
    assert (stopped / "events.jsonl").read_bytes() == before


def test_the_same_samples_dealt_out_otherwise_are_other_data(tmp_path: Path) -> None:
    data = make_data((40, 40))
    killed(2, lambda: run(tiny(tmp_path / "run"), data=data))
    with pytest.raises(RunError, match="other data"):
        resume(tmp_path / "run", data=replace(data, clients=data.clients[::-1]))
    resume(tmp_path / "run", data=data)


def test_a_truncated_checkpoint_is_a_run_error(stopped: Path) -> None:
    newest = max((stopped / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.raises(RunError, match=f"the checkpoint .*{newest.name} is damaged"):
        resume(stopped, data=own_data())
    newest.unlink()  # the one before still serves
    resume(stopped, data=own_data())
    assert (stopped / "summary.json").exists()


def test_a_checkpoint_of_another_method_is_a_run_error(stopped: Path) -> None:
    config = yaml.safe_load((stopped / "config.yaml").read_text())
    (stopped / "config.yaml").write_text(yaml.safe_dump({**config, "method": "fedavg"}))
    with pytest.raises(RunError, match="the checkpoint"):
        resume(stopped, data=own_data())


def test_events_that_were_cut_short_are_a_run_error(stopped: Path) -> None:
    events = stopped / "events.jsonl"
    events.write_text(events.read_text().splitlines(keepends=True)[0])
    with pytest.raises(RunError, match="shorter than its checkpoint says"):
        resume(stopped, data=own_data())


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        resume(tmp_path)


def go_on(out: Path) -> None:
    """A run with worker processes, or what is left of it."""
    if (out / "config.yaml").exists():
        resume(out, data=own_data())
    else:
        run(tiny(out, engine="workers", rounds=8, seed=2), data=own_data())


def test_killed_at_random_moments_and_resumed(tmp_path: Path) -> None:
    """The first kill comes in the warm-up, the others some moments after a round has ended."""
    go_on(tmp_path / "whole")
    cut, draws, num_kills = tmp_path / "cut", random.Random(4), 0
    while not (cut / "summary.json").exists():
        process = get_context("fork").Process(target=go_on, args=(cut,))
        process.start()
        before = progress(cut)
        while process.is_alive() and progress(cut) <= before:
            time.sleep(0.002)
        time.sleep(draws.uniform(0, 0.08))
        if num_kills < 6 and process.is_alive():
            process.kill()
            num_kills += 1
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    assert num_kills >= 3
    assert events_of(cut) == events_of(tmp_path / "whole")
    assert summary_of(cut) == summary_of(tmp_path / "whole")


def slowly(out: Path) -> None:
    """The same, with a disk that takes its time over checkpoints."""
    plain = checkpoint.save

    def save(path: Path, packed: Packed, spare: Path | None = None) -> None:
        if path.stem == "round-00002":
            assert spare is not None  # round 0, which is then no more
            spare.replace(path.with_suffix(".partial"))
            path.with_suffix(".partial").write_bytes(b"half of a")
            time.sleep(600)
        plain(path, packed, spare)

    checkpoint.save = save
    go_on(out)


def test_killed_while_a_checkpoint_is_being_written(tmp_path: Path) -> None:
    """What is recorded is never more than a round ahead of what is saved."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    go_on(whole)
    process = get_context("fork").Process(target=slowly, args=(cut,))
    process.start()
    while process.is_alive() and not list(cut.glob("checkpoints/*.partial")):
        time.sleep(0.002)
    time.sleep(1)  # the next round ends, and waits
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [event["round"] for event in events_of(cut)] == [0, 1, 2]
    assert RunFolder(cut).saved_rounds() == [1]
    resume(cut, data=own_data())
    assert events_of(cut) == events_of(whole)
    assert summary_of(cut) == summary_of(whole)


@pytest.mark.parametrize("round", [0, 2, 3])
def test_a_full_disk_is_one_sentence_and_loses_nothing(round: int, tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "whole"), data=own_data()).run
    cut = tmp_path / "cut"
    full = cut / "checkpoints" / f"round-{round:05d}.partial"

    def fill(event: dict[str, Any]) -> None:
        if event["event"] == "start":
            full.symlink_to("/dev/full")

    with pytest.raises(RunError) as error:
        run(tiny(cut, keep=9), data=own_data(), observers=[fill])
    target = full.with_suffix(".safetensors")
    assert str(error.value) == f"cannot write the checkpoint {target}: No space left on device"
    assert not full.exists()
    assert not (cut / "summary.json").exists()
    assert len(events_of(cut)) == round + 1
    assert RunFolder(cut).saved_rounds() == list(range(round))
    resume(cut, data=own_data())
    assert events_of(cut) == events_of(whole)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_checkpoints_are_written_over_the_oldest_of_several(
    keep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: dict[int, int] = {}
    plain = loop.save

    def save(folder: RunFolder, round: int, packed: Packed, keep: int) -> None:
        plain(folder, round, packed, keep)
        files[round] = folder.checkpoint(round).stat().st_ino

    monkeypatch.setattr(loop, "save", save)
    run(tiny(tmp_path / "run", rounds=6, keep=keep), data=own_data())
    assert RunFolder(tmp_path / "run").saved_rounds() == list(range(7))[-keep:]
    if keep > 1:  # a single one must be whole until the next one is
        assert len(set(files.values())) == keep
        assert files[6] == files[6 - keep]


def test_a_checkpoint_every_few_rounds_and_after_the_last(tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "whole", rounds=5), data=own_data()).run
    config = tiny(tmp_path / "cut", rounds=5, save_every=2, keep=9)
    killed(4, lambda: run(config, data=own_data()))
    assert RunFolder(tmp_path / "cut").saved_rounds() == [0, 2]
    resume(tmp_path / "cut", data=own_data())
    assert RunFolder(tmp_path / "cut").saved_rounds() == [0, 2, 4, 5]
    assert events_of(tmp_path / "cut") == events_of(whole)


def progress(run: Path) -> int:
    """0 before there is anything, then 1, then one more for every round."""
    if not (run / "config.yaml").exists():
        return 0
    events = run / "events.jsonl"
    return 1 + (events.read_bytes().count(b"\n") if events.exists() else 0)
