"""A run that was stopped, at whatever moment, ends as one that was not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from sofa_fl.api.runs import resume, run
from sofa_fl.errors import RunError
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.checkpoint import Packed
from sofa_fl.experiment.storage.run_folder import RunFolder
from tests.engine.cases import make_data
from tests.experiment.cases import METHODS, events_of, own_data, summary_of, tiny
from tests.experiment.faults import full_disk


class KilledError(Exception):
    """Stands for a kill."""


def killed(round: int, going: Callable[[], object]) -> None:
    """Stop what is `going` where a round is over but for its checkpoint."""
    plain = checkpoint.save

    def save(path: Path, packed: Packed) -> None:
        if path.stem == f"round-{round:05d}":
            raise KilledError
        plain(path, packed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", save)
        with pytest.raises(KilledError):
            going()


@pytest.mark.parametrize("values", METHODS.values(), ids=METHODS)
def test_resumed_is_whole(values: dict[str, Any], tmp_path: Path) -> None:
    """Stopped in every round, and each time resumed from there."""
    whole = run(tiny(tmp_path / "whole", **values), data=own_data()).run
    cut = tmp_path / "cut"
    going = partial(run, tiny(cut, **values), data=own_data())
    for round in range(4):
        killed(round, going)
        assert RunFolder(cut).num_recorded() == round
        assert not (cut / "summary.json").exists()
        going = partial(resume, cut, data=own_data())
    going()
    assert events_of(cut) == events_of(whole)
    assert summary_of(cut) == summary_of(whole)


def test_stopped_twice_in_the_same_round(tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "whole"), data=own_data()).run
    cut = tmp_path / "cut"
    killed(2, lambda: run(tiny(cut), data=own_data()))
    killed(2, lambda: resume(cut, data=own_data()))
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
    long = run(tiny(tmp_path / "long", rounds=5), data=own_data()).run
    short = run(tiny(tmp_path / "short"), data=own_data()).run
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
    for other in (own_data(seed=8), make_data()):
        with pytest.raises(RunError, match="was run with other data or another network"):
            resume(stopped, data=other)
    with pytest.raises(RunError, match=r"your own data.*sofa_fl\.resume\(\.\.\., data=\.\.\.\)"):
        resume(stopped)
    assert (stopped / "events.jsonl").read_bytes() == before


def test_the_same_samples_dealt_out_otherwise_are_other_data(tmp_path: Path) -> None:
    data = make_data((40, 40))
    killed(2, lambda: run(tiny(tmp_path / "run"), data=data))
    with pytest.raises(RunError, match="other data"):
        resume(tmp_path / "run", data=replace(data, clients=data.clients[::-1]))
    resume(tmp_path / "run", data=data)


def test_a_checkpoint_of_another_method_is_a_run_error(stopped: Path) -> None:
    config = yaml.safe_load((stopped / "config.yaml").read_text())
    (stopped / "config.yaml").write_text(yaml.safe_dump({**config, "method": "fedavg"}))
    with pytest.raises(RunError, match="the checkpoint"):
        resume(stopped, data=own_data())


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        resume(tmp_path)


@pytest.mark.parametrize("round", [0, 2, 3])
def test_a_full_disk_is_one_sentence_and_loses_nothing(round: int, tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "whole"), data=own_data()).run
    cut = tmp_path / "cut"
    target = RunFolder(cut).checkpoint(round)
    with full_disk(target.name, 100), pytest.raises(RunError) as error:
        run(tiny(cut, keep=9), data=own_data())
    assert str(error.value) == f"cannot write the checkpoint {target}: No space left on device"
    assert not RunFolder(cut).unfinished()
    assert not (cut / "summary.json").exists()
    assert RunFolder(cut).num_recorded() == round
    assert RunFolder(cut).saved_rounds() == list(range(round))
    resume(cut, data=own_data())
    assert events_of(cut) == events_of(whole)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_checkpoints_are_kept(keep: int, tmp_path: Path) -> None:
    run(tiny(tmp_path / "run", rounds=6, keep=keep), data=own_data())
    assert RunFolder(tmp_path / "run").saved_rounds() == list(range(7))[-keep:]


def test_a_checkpoint_every_few_rounds_and_after_the_last(tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "whole", rounds=5), data=own_data()).run
    config = tiny(tmp_path / "cut", rounds=5, save_every=2, keep=9)
    killed(4, lambda: run(config, data=own_data()))
    assert RunFolder(tmp_path / "cut").saved_rounds() == [0, 2]
    resume(tmp_path / "cut", data=own_data())
    assert RunFolder(tmp_path / "cut").saved_rounds() == [0, 2, 4, 5]
    assert events_of(tmp_path / "cut") == events_of(whole)


def test_with_no_checkpoints_but_the_last_a_stopped_run_starts_over(tmp_path: Path) -> None:
    whole = run(tiny(tmp_path / "whole", rounds=3), data=own_data()).run
    killed(3, lambda: run(tiny(tmp_path / "cut", rounds=3, save_every=0), data=own_data()))
    assert RunFolder(tmp_path / "cut").saved_rounds() == []
    resume(tmp_path / "cut", data=own_data())
    assert RunFolder(tmp_path / "cut").saved_rounds() == [3]
    assert events_of(tmp_path / "cut") == events_of(whole)
